#include "lab/reproduce/reproduce.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>

#include "core/check.h"
#include "core/commit.h"
#include "core/device.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/nearest.h"
#include "train/evaluate.h"
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
  return smaller_is_better(what) ? -found->second : found->second;
}

const ArmScores& row_of(const std::vector<ArmScores>& rows, const std::string& arm) {
  for (const ArmScores& row : rows) {
    if (row.arm == arm) return row;
  }
  throw UsageError("[reproduce] an expectation names the arm {}, which there is not", arm);
}

// What reads both directions goes through no state.
bool causal(const TrainOptions& resolved) {
  const auto& pattern = resolved.model.pattern;
  return std::none_of(pattern.begin(), pattern.end(), [](const std::string& mixer) {
    return mixer.find("causal=false") != std::string::npos;
  });
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

// The runs of some claims, each once, in three stages: the first seed tries the learning rates, where
// there are several; the other seeds follow; what begins with another's weights comes last.
class Plan {
 public:
  Plan(const std::vector<const Claim*>& claims, const ReproduceOptions& o)
      : claims_(claims), o_(o) {}
  int64_t seeds(const Claim& claim) const { return o_.seeds > 0 ? o_.seeds : claim.seeds; }
  std::vector<Arm> arms(const Claim& claim) const {
    if (claim.arms == nullptr) return {};
    return claim.arms(o_.scale == "gpu" ? Effort::gpu : Effort::cpu);
  }

  void run(const std::string& program, const RunsTell& tell) {
    for (const Stage stage : kStages) {
      const std::vector<TrainOptions> now = runs_of(stage);
      const auto outcomes = run_all(now, size_t(o_.jobs), program, tell);
      for (size_t i = 0; i < now.size(); ++i) outcomes_[now[i].name] = outcomes[i];
    }
  }
  void read() {
    for (const Stage stage : kStages) {
      for (const TrainOptions& run : runs_of(stage))
        outcomes_[run.name] = finished(run) ? RunOutcome{read_result(folder_of(run)), ""}
                                            : RunOutcome{{}, "has not finished"};
    }
  }
  const RunOutcome& outcome(const Claim& claim, const Arm& arm, int64_t seed) const {
    return outcomes_.at(run_of(claim, arm, seed).name);
  }
  // The best of the claim's rates, by the validation of the first seed.
  double rate(const Claim& claim, const Arm& arm) const {
    double chosen = 1, best = NAN;
    for (const double rate : rates(claim, arm)) {
      const auto found = outcomes_.find(run_at(claim, arm, 0, rate).name);
      if (found == outcomes_.end() || !found->second.failure.empty()) continue;
      const double score = validation(claim, found->second.result);
      if (score <= best) continue;
      best = score;
      chosen = rate;
    }
    return chosen;
  }
  std::string note(const Claim& claim, double rate) const {
    if (claim.rates.size() < 3) return "";
    return rate == claim.rates.front()  ? "lowest tried"
           : rate == claim.rates.back() ? "highest tried"
                                        : "";
  }

  // "; mqar:T=128, 2 layers, D = 64, 1200 steps of 64 examples", and the learning rates.
  std::string sizes(const Claim& claim) const {
    const std::vector<Arm> all = arms(claim);
    if (all.empty()) return "";
    const TrainOptions run = settled(all[0].options, o_, 0);
    std::string text = fmt::format(
        "; {}, {} layers, D = {}, {} steps of {} examples",
        run.task,
        run.model.layers,
        run.model.D,
        run.schedule.steps,
        run.train.batch
    );
    if (o_.steps > 0) text += fmt::format(" instead of {}", all[0].options.schedule.steps);
    if (!claim.rates.empty())
      text += fmt::format(
          ", {:g} times the learning rate {:g}, the best on validation",
          fmt::join(claim.rates, ", "),
          run.optim.lr
      );
    return text;
  }

 private:
  enum Stage { tries, others, begins };
  static constexpr Stage kStages[] = {tries, others, begins};

  static std::vector<double> rates(const Claim& claim, const Arm& arm) {
    return claim.rates.empty() || !arm.after.empty() ? std::vector<double>{1} : claim.rates;
  }
  // Of what the claim scores, on validation.
  static double validation(const Claim& claim, const TrainResult& result) {
    const size_t slash = claim.score.find('/');
    const bool own = slash == std::string::npos;  // a measure's unit is none of the runs' scores
    return score_of(result, "valid/" + (own ? result.metric : claim.score.substr(slash + 1)));
  }
  TrainOptions run_at(const Claim& claim, const Arm& arm, int64_t seed, double rate) const {
    TrainOptions options = arm.options;
    options.optim.lr *= rate;
    for (const Arm& first : arms(claim)) {
      if (first.label == arm.after) options.from = folder_of(run_of(claim, first, seed));
    }
    return settled(options, o_, seed);
  }
  TrainOptions run_of(const Claim& claim, const Arm& arm, int64_t seed) const {
    return run_at(claim, arm, seed, rate(claim, arm));
  }
  std::vector<TrainOptions> runs_of(Stage stage) const {
    std::vector<TrainOptions> list;
    std::set<std::string> names;
    const auto add = [&](const TrainOptions& run) {
      if (!outcomes_.contains(run.name) && names.insert(run.name).second) list.push_back(run);
    };
    for (const Claim* claim : claims_) {
      for (int64_t seed = 0; seed < seeds(*claim); ++seed) {
        for (const Arm& arm : arms(*claim)) {
          const bool waits = seed > 0 && rates(*claim, arm).size() > 1;  // for the first seed
          if (arm.after.empty() != (stage != begins) || (stage == tries && waits)) continue;
          if (stage != tries) {
            add(run_of(*claim, arm, seed));
            continue;
          }
          for (const double rate : rates(*claim, arm)) add(run_at(*claim, arm, seed, rate));
        }
      }
    }
    return list;
  }

  const std::vector<const Claim*> claims_;
  const ReproduceOptions& o_;
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

// "a", then "a; b": what differs between the runs of a claim is told of all.
void also(std::string& list, const std::string& text) {
  if (("; " + list + "; ").find("; " + text + "; ") == std::string::npos)
    list += (list.empty() ? "" : "; ") + text;
}

// A row per arm, or what `measure` makes of the trained ones.
void judge_claim(const Claim& claim, const Plan& plan, Finding& finding) {
  Trial trial{finding.scale == "gpu" ? Effort::gpu : Effort::cpu, plan.seeds(claim), {}};
  std::vector<ArmScores> rows;
  std::string failure;
  for (const Arm& arm : plan.arms(claim)) {
    ArmScores row{arm.label};
    const double rate = plan.rate(claim, arm);
    row.lr = rate * arm.options.optim.lr;
    row.lr_note = plan.note(claim, rate);
    for (int64_t seed = 0; seed < trial.seeds; ++seed) {
      const RunOutcome& run = plan.outcome(claim, arm, seed);
      if (!run.failure.empty()) {
        row.failure = failure = run.failure;
        row.scores.push_back(NAN);
        continue;
      }
      if (claim.measure == nullptr) row.scores.push_back(score_of(run.result, claim.score));
      row.parameters = double(run.result.parameters);
      if (causal(run.result.options)) row.state_bytes = double(run.result.state_bytes);
      row.seconds += run.result.seconds;
      trial.folders[arm.label].push_back(run.result.folder);
      const std::string env = run.result.folder + "/env.json";
      const Json where = parse_json(read_file(env), env);
      also(
          finding.device,
          fmt::format(
              "{}, {}", where.at("device").get<std::string>(), run.result.options.train.precision
          )
      );
      also(finding.commit, where.at("commit"));
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
  for (const Expectation& e : claim.expects)
    finding.judgements.push_back(judge(e, finding.rows, claim.measure != nullptr));
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

std::string Expectation::text(bool computed) const {
  switch (kind) {
    case near: return fmt::format("{} within {:g} of {}", a, margin, b);
    case reaches: return fmt::format("{} above {:g}", a, margin);
    case under: return fmt::format("{} below {:g}", a, margin);
    case above: break;
  }
  if (margin < 0)
    return fmt::format("{} at most {:g} {} than {}", a, -margin, computed ? "smaller" : "worse", b);
  const std::string by = margin > 0 ? fmt::format(" by {:g}", margin) : "";
  return fmt::format("{} {} than {}{}", a, computed ? "larger" : "better", b, by);
}

Judgement judge(const Expectation& e, const std::vector<ArmScores>& rows, bool computed) {
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
  judged.text = e.text(computed);
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
      finding.setting += plan.sizes(claim);
      judge_claim(claim, plan, finding);
      if (finding.device.empty()) finding.device = describe_device(at::kCPU);
      if (finding.commit.empty()) finding.commit = commit();
      const auto has_some = [](const ArmScores& row) { return !row.known().empty(); };
      if (o.read && std::none_of(finding.rows.begin(), finding.rows.end(), has_some)) continue;
      all.back().findings.push_back(std::move(finding));
    }
  }
  return all;
}

}  // namespace horner
