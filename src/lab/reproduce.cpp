#include "lab/reproduce.h"

#include <chrono>
#include <cmath>

#include "core/check.h"
#include "core/commit.h"
#include "core/device.h"
#include "core/nearest.h"
#include "lab/runs.h"

namespace horner {
namespace {

// "test/accuracy" of a result; losses and bits count negatively, so that more is better.
double score_of(const TrainResult& result, const std::string& name) {
  const size_t slash = name.find('/');
  const std::string where = name.substr(0, slash), what = name.substr(slash + 1);
  const Scores& scores =
      where == "test" ? result.test
                      : (where == "valid" ? result.valid : result.lengths.at(std::stoll(where)));
  const auto found = scores.values.find(what);
  if (found == scores.values.end()) throw RunError("the run has no score {}", name);
  const bool less_is_better = what == "loss" || what == "bits per byte" || what == "mse";
  return less_is_better ? -found->second : found->second;
}

const ArmScores& row_of(const std::vector<ArmScores>& rows, const std::string& arm) {
  for (const ArmScores& row : rows) {
    if (row.arm == arm) return row;
  }
  throw UsageError("[reproduce] an expectation names the arm {}, which there is not", arm);
}

std::string device_of(const ReproduceOptions& o) {
  return o.device == "auto" ? (o.scale == "gpu" ? "cuda" : "cpu") : o.device;
}

TrainOptions settled(const Arm& arm, const Claim& claim, const ReproduceOptions& o, int64_t seed) {
  TrainOptions options = arm.options;
  options.seed = seed;
  options.out = fmt::format("{}/{}", o.runs, claim.name);
  options.name = fmt::format("{}-{}-seed{}", o.scale, arm.label, seed);
  for (char& c : options.name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-') c = '_';
  }
  options.device = device_of(o);
  if (o.steps > 0) options.schedule.steps = o.steps;
  options.log.tensorboard = false;
  options.checkpoint.keep = 1;
  return options;
}

std::vector<const Claim*> chosen(const Paper& paper, const std::vector<std::string>& names) {
  std::vector<const Claim*> list;
  std::vector<std::string> known;
  for (const Claim& claim : paper.claims) known.push_back(claim.name);
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw UsageError("{}", unknown("claim", name, known));
    }
  }
  for (const Claim& claim : paper.claims) {
    if (names.empty() || std::find(names.begin(), names.end(), claim.name) != names.end()) {
      list.push_back(&claim);
    }
  }
  return list;
}

void train_arms(
    const Claim& claim,
    const ReproduceOptions& o,
    Effort scale,
    int64_t seeds,
    Finding& finding,
    const RunsTell& tell
) {
  std::vector<TrainOptions> runs;
  for (int64_t seed = 0; seed < seeds; ++seed) {
    for (const Arm& arm : claim.arms(scale)) {
      if (seed == 0) finding.rows.push_back({arm.label, {}});
      runs.push_back(settled(arm, claim, o, seed));
    }
  }
  const auto outcomes = run_all(runs, o.jobs, tell);
  const size_t arms = finding.rows.size();
  for (size_t i = 0; i < outcomes.size(); ++i) {  // seed by seed, arm by arm
    ArmScores& row = finding.rows[i % arms];
    if (!outcomes[i].failure.empty()) {
      row.failure = outcomes[i].failure;
      continue;
    }
    const TrainResult& result = outcomes[i].result;
    row.scores.push_back(score_of(result, claim.score));
    row.parameters = double(result.parameters);
    row.state_bytes = double(result.state_bytes);
    row.seconds += result.seconds;
  }
}

}  // namespace

std::string_view words(Verdict verdict) {
  switch (verdict) {
    case Verdict::holds: return "holds";
    case Verdict::does_not_hold: return "does not hold";
    case Verdict::not_shown: break;
  }
  return "not shown";
}

Judgement judge(const Expectation& e, const std::vector<ArmScores>& rows) {
  const ArmScores& a = row_of(rows, e.a);
  const bool two = e.kind == Expectation::above || e.kind == Expectation::near;
  std::vector<double> value = a.scores;
  std::string failure = a.failure;
  if (two) {
    const ArmScores& b = row_of(rows, e.b);
    failure += b.failure;
    const size_t n = std::min(value.size(), b.scores.size());
    value.resize(n);
    for (size_t i = 0; i < n; ++i) value[i] -= b.scores[i];  // paired by seed
  }
  Judgement judged;
  static constexpr const char* kForms[] = {
      "{} - {} > {:g}", "|{} - {}| < {:g}", "{}{} > {:g}", "{}{} < {:g}"};
  judged.text = fmt::format(fmt::runtime(kForms[e.kind]), e.a, two ? e.b : "", e.margin);
  judged.verdict = Verdict::not_shown;
  if (!failure.empty() || value.empty()) return judged;
  judged.value = a.exact ? Interval{value[0], 0, 1} : t_interval(value);
  const double low = judged.value.low(), high = judged.value.high(), m = e.margin;
  bool yes = false, no = false;
  switch (e.kind) {
    case Expectation::above:
    case Expectation::reaches:
      yes = low > m;
      no = high < m;
      break;
    case Expectation::under:
      yes = high < m;
      no = low > m;
      break;
    case Expectation::near:
      yes = low > -m && high < m;
      no = low > m || high < -m;
      break;
  }
  judged.verdict = yes ? Verdict::holds : (no ? Verdict::does_not_hold : Verdict::not_shown);
  return judged;
}

Verdict overall(const std::vector<Judgement>& judgements) {
  Verdict verdict = judgements.empty() ? Verdict::not_shown : Verdict::holds;
  for (const Judgement& judged : judgements) {
    if (judged.verdict == Verdict::does_not_hold) return Verdict::does_not_hold;
    if (judged.verdict == Verdict::not_shown) verdict = Verdict::not_shown;
  }
  return verdict;
}

Reproduction reproduce(const Paper& paper, const ReproduceOptions& o, const ReproduceTell& tell) {
  HORNER_CHECK(
      o.seeds >= 0 && o.steps >= 0 && o.jobs >= 1,
      "[reproduce] seeds and steps must be at least 0 and jobs at least 1, got {}, {} and {}",
      o.seeds,
      o.steps,
      o.jobs
  );
  const Effort scale = o.scale == "gpu" ? Effort::gpu : Effort::cpu;
  const auto claims = chosen(paper, o.claim);
  const auto seeds_of = [&](const Claim& c) { return o.seeds > 0 ? o.seeds : c.seeds; };
  Reproduction all{&paper, o, describe_device(find_device(device_of(o))), commit(), "", {}};
  size_t done = 0, total = 0;
  for (const Claim* c : claims) {
    total += c->arms == nullptr ? 1 : c->arms(scale).size() * size_t(seeds_of(*c));
  }
  for (const Claim* c : claims) {
    const auto start = std::chrono::steady_clock::now();
    Finding finding{c->name, c->says, c->setting, c->score};
    tell(done, total, c->name, "");
    if (c->arms == nullptr) {
      c->measure(scale, seeds_of(*c), finding);
      ++done;
    } else {
      train_arms(
          *c,
          o,
          scale,
          seeds_of(*c),
          finding,
          [&](size_t finished, const std::string& what) {
            tell(done + finished, total, c->name, what);
          }
      );
      done += finding.rows.size() * size_t(seeds_of(*c));
    }
    for (const Expectation& e : c->expects) finding.judgements.push_back(judge(e, finding.rows));
    finding.verdict = overall(finding.judgements);
    const auto took = std::chrono::steady_clock::now() - start;
    finding.seconds = std::chrono::duration<double>(took).count();
    all.findings.push_back(std::move(finding));
  }
  return all;
}

Json Reproduction::json() const {
  Json list = Json::array();
  for (const Finding& f : findings) {
    Json rows = Json::array(), judged = Json::array();
    for (const ArmScores& row : f.rows) {
      rows.push_back(
          {{"arm", row.arm},
           {"scores", row.scores},
           {"parameters", row.parameters},
           {"state_bytes", row.state_bytes},
           {"seconds", row.seconds},
           {"failure", row.failure}}
      );
    }
    for (const Judgement& j : f.judgements) {
      judged.push_back(
          {{"expects", j.text},
           {"mean", j.value.mean},
           {"low", j.value.low()},
           {"high", j.value.high()},
           {"verdict", words(j.verdict)}}
      );
    }
    list.push_back(
        {{"claim", f.claim},
         {"says", f.says},
         {"setting", f.setting},
         {"score", f.score},
         {"rows", rows},
         {"judgements", judged},
         {"verdict", words(f.verdict)},
         {"seconds", f.seconds}}
    );
  }
  return {
      {"paper", paper->name},
      {"arxiv", paper->arxiv},
      {"title", paper->title},
      {"options", to_json(options)},
      {"device", device},
      {"commit", commit},
      {"date", date},
      {"findings", list}};
}

}  // namespace horner
