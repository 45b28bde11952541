#include "lab/reproduce.h"

#include <chrono>
#include <cmath>
#include <filesystem>

#include "core/check.h"
#include "core/commit.h"
#include "core/device.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/nearest.h"
#include "train/run_folder.h"

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

// Named by everything that decides the outcome, so that equal runs of different claims are one.
TrainOptions settled(TrainOptions options, const ReproduceOptions& o, int64_t seed) {
  options.seed = seed;
  options.out = o.runs;
  options.device = device_of(o);
  if (o.scale == "cpu") options.train.precision = "fp32";  // the same experiment on any device
  if (o.steps > 0) {
    options.schedule.steps = o.steps;
    options.schedule.warmup = std::min(options.schedule.warmup, o.steps);
  }
  options.log.tensorboard = false;
  options.checkpoint.keep = 1;
  TrainOptions named = options;  // wherever the folders lie
  named.from = std::filesystem::path(options.from).filename();
  options.name = o.scale + "_" + run_name(named);
  return options;
}

std::vector<const Claim*> chosen(
    const std::vector<const Paper*>& papers, const std::vector<std::string>& names
) {
  std::vector<const Claim*> list;
  std::vector<std::string> known;
  for (const Paper* paper : papers) {
    for (const Claim& claim : paper->claims) {
      known.push_back(claim.name);
      if (names.empty() || std::find(names.begin(), names.end(), claim.name) != names.end())
        list.push_back(&claim);
    }
  }
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UsageError("{}", unknown("claim", name, known));
  }
  return list;
}

// The runs of some claims, each once.
class Plan {
 public:
  Plan(const std::vector<const Claim*>& claims, const ReproduceOptions& o) : o_(o) {
    for (const Claim* claim : claims) {
      if (claim->arms == nullptr) continue;
      for (int64_t seed = 0; seed < seeds(*claim); ++seed) {
        for (const Arm& arm : arms(*claim)) add(*claim, arm, seed);
      }
    }
  }
  int64_t seeds(const Claim& claim) const { return o_.seeds > 0 ? o_.seeds : claim.seeds; }
  std::vector<Arm> arms(const Claim& claim) const {
    return claim.arms(o_.scale == "gpu" ? Effort::gpu : Effort::cpu);
  }

  void run(const std::string& program, const RunsTell& tell) {
    for (const bool later : {false, true}) {  // what begins with another's weights waits for them
      std::vector<TrainOptions> now;
      for (const auto& name : order_) {
        if (runs_.at(name).from.empty() != later) now.push_back(runs_.at(name));
      }
      const auto outcomes = run_all(now, size_t(o_.jobs), program, tell);
      for (size_t i = 0; i < now.size(); ++i) outcomes_[now[i].name] = outcomes[i];
    }
  }
  void read() {
    for (const auto& [name, run] : runs_) {
      outcomes_[name] = finished(run) ? RunOutcome{read_result(folder_of(run)), ""}
                                      : RunOutcome{{}, "has not finished"};
    }
  }
  const RunOutcome& outcome(const Claim& claim, const Arm& arm, int64_t seed) const {
    return outcomes_.at(run_of(claim, arm, seed).name);
  }

 private:
  TrainOptions run_of(const Claim& claim, const Arm& arm, int64_t seed) const {
    TrainOptions options = arm.options;
    for (const Arm& first : arms(claim)) {
      if (first.label == arm.after) options.from = folder_of(settled(first.options, o_, seed));
    }
    return settled(options, o_, seed);
  }
  void add(const Claim& claim, const Arm& arm, int64_t seed) {
    const TrainOptions run = run_of(claim, arm, seed);
    if (runs_.emplace(run.name, run).second) order_.push_back(run.name);
  }

  const ReproduceOptions& o_;
  std::vector<std::string> order_;
  std::map<std::string, TrainOptions> runs_;
  std::map<std::string, RunOutcome> outcomes_;
};

// "input.txt, 1115394 bytes, hash 0f3..", of several files their number.
std::string describe_data(const Json& sources) {
  if (!sources.is_array() || sources.empty()) return "";
  int64_t bytes = 0;
  std::string hashes;
  for (const Json& file : sources) {
    bytes += file.at("bytes").get<int64_t>();
    hashes += file.value("hash", file.value("xxh128", ""));  // of images, of text
  }
  const std::string path = sources[0].at("path");
  return fmt::format(
      "{}, {} bytes, hash {}",
      sources.size() == 1 ? std::filesystem::path(path).filename().string()
                          : fmt::format("{} files", sources.size()),
      bytes,
      xxh128(hashes).substr(0, 12)
  );
}

// A row per arm, or what `measure` makes of the trained ones.
void judge_claim(const Claim& claim, const Plan& plan, Finding& finding) {
  Trial trial{finding.scale == "gpu" ? Effort::gpu : Effort::cpu, plan.seeds(claim), {}};
  std::vector<ArmScores> rows;
  std::string failure;
  for (const Arm& arm : claim.arms == nullptr ? std::vector<Arm>{} : plan.arms(claim)) {
    ArmScores row{arm.label};
    for (int64_t seed = 0; seed < trial.seeds; ++seed) {
      const RunOutcome& run = plan.outcome(claim, arm, seed);
      if (!run.failure.empty()) {
        row.failure = failure = run.failure;
        row.scores.push_back(NAN);
        continue;
      }
      if (claim.measure == nullptr) row.scores.push_back(score_of(run.result, claim.score));
      row.parameters = double(run.result.parameters);
      row.state_bytes = double(run.result.state_bytes);
      row.seconds += run.result.seconds;
      trial.folders[arm.label].push_back(run.result.folder);
      const std::string env = run.result.folder + "/env.json";
      const Json where = parse_json(read_file(env), env);
      finding.device = where.at("device");
      finding.commit = where.at("commit");
      finding.data = describe_data(where.value("sources", Json()));
    }
    finding.seconds += row.seconds;
    rows.push_back(row);
  }
  if (claim.measure == nullptr || !failure.empty()) {
    finding.rows = rows;
  } else {
    const auto start = std::chrono::steady_clock::now();
    claim.measure(trial, finding);
    const auto took = std::chrono::steady_clock::now() - start;
    finding.seconds += std::chrono::duration<double>(took).count();
  }
  if (claim.measure != nullptr && !failure.empty()) return;  // its rows are not those of the arms
  for (const Expectation& e : claim.expects) finding.judgements.push_back(judge(e, finding.rows));
  finding.verdict = overall(finding.judgements);
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

std::vector<double> ArmScores::known() const {
  std::vector<double> list;
  std::copy_if(scores.begin(), scores.end(), std::back_inserter(list), [](double x) {
    return std::isfinite(x);
  });
  return list;
}

Judgement judge(const Expectation& e, const std::vector<ArmScores>& rows) {
  const ArmScores& a = row_of(rows, e.a);
  const bool two = e.kind == Expectation::above || e.kind == Expectation::near;
  ArmScores value = a;
  if (two) {
    const ArmScores& b = row_of(rows, e.b);
    value.scores.resize(std::min(a.scores.size(), b.scores.size()));
    for (size_t i = 0; i < value.scores.size(); ++i) value.scores[i] -= b.scores[i];  // by seed
  }
  const std::vector<double> scores = value.known();
  Judgement judged;
  static constexpr const char* kForms[] = {
      "{} - {} > {:g}", "|{} - {}| < {:g}", "{}{} > {:g}", "{}{} < {:g}"};
  judged.text = fmt::format(fmt::runtime(kForms[e.kind]), e.a, two ? e.b : "", e.margin);
  judged.verdict = Verdict::not_shown;
  if (scores.empty()) return judged;
  judged.value = a.exact ? Interval{scores[0], 0, 1} : t_interval(scores);
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

std::vector<Reproduction> reproduce(
    const std::vector<const Paper*>& papers,
    const ReproduceOptions& o,
    const std::string& program,
    const RunsTell& tell
) {
  HORNER_CHECK(
      o.seeds >= 0 && o.steps >= 0 && o.jobs >= 1,
      "[reproduce] seeds and steps must be at least 0 and jobs at least 1, got {}, {} and {}",
      o.seeds,
      o.steps,
      o.jobs
  );
  const auto claims = chosen(papers, o.claim);
  Plan plan(claims, o);
  if (o.read) {
    plan.read();
  } else {
    find_device(device_of(o));  // or says that there is none
    plan.run(program, tell);
  }
  std::vector<Reproduction> all;
  for (const Paper* paper : papers) {
    all.push_back({paper, {}});
    for (const Claim& claim : paper->claims) {
      if (std::find(claims.begin(), claims.end(), &claim) == claims.end()) continue;
      Finding finding{claim.name, claim.says, claim.setting, claim.score, o.scale};
      if (o.steps > 0) finding.setting += fmt::format("; {} steps instead of its own", o.steps);
      finding.device = describe_device(at::kCPU);
      finding.commit = commit();
      judge_claim(claim, plan, finding);
      const auto has_some = [](const ArmScores& row) { return !row.known().empty(); };
      if (o.read && std::none_of(finding.rows.begin(), finding.rows.end(), has_some)) continue;
      all.back().findings.push_back(std::move(finding));
    }
  }
  return all;
}

}  // namespace horner
