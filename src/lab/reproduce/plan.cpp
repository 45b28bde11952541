#include "lab/reproduce/plan.h"

#include <cmath>
#include <filesystem>
#include <set>

#include "core/check.h"
#include "train/evaluate.h"
#include "train/run_folder.h"

namespace horner {
namespace {

// The name contains everything that decides the outcome, so equal runs of different claims are one run.
TrainOptions named_run(TrainOptions options, const ReproduceOptions& o, int64_t seed) {
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

std::vector<double> rates(const Claim& claim, const Arm& arm) {
  return claim.rates.empty() || !arm.after.empty() ? std::vector<double>{1} : claim.rates;
}

// The claim's score, on validation.
double validation(const Claim& claim, const TrainResult& result) {
  const bool unit = claim.score.find('/') == std::string::npos;  // of numbers that are computed
  return gain(result, {"valid", unit ? result.metric : ScoreName::parse(claim.score).metric});
}

}  // namespace

std::string device_of(const ReproduceOptions& o) {
  return o.device == "auto" ? (o.scale == "gpu" ? "cuda" : "cpu") : o.device;
}

double gain(const TrainResult& result, const ScoreName& name) {
  const double score = score_of(result, name);
  if (std::isnan(score)) throw RunError("the run has no score {}", name.text());
  return smaller_is_better(name.metric) ? -score : score;
}

std::vector<Arm> Plan::arms(const Claim& claim) const {
  if (claim.arms == nullptr) return {};
  return claim.arms(o_.scale == "gpu" ? Effort::gpu : Effort::cpu);
}

void Plan::run(const std::string& program, const RunsTell& tell) {
  for (const Stage stage : kStages) {
    const std::vector<TrainOptions> now = runs_of(stage);
    const auto outcomes = run_all(now, size_t(o_.jobs), program, tell);
    for (size_t i = 0; i < now.size(); ++i) outcomes_[now[i].name] = outcomes[i];
  }
}

void Plan::read() {
  for (const Stage stage : kStages) {
    for (const TrainOptions& run : runs_of(stage))
      outcomes_[run.name] = finished(run) ? RunOutcome{read_result(folder_of(run)), ""}
                                          : RunOutcome{{}, "has not finished"};
  }
}

const RunOutcome& Plan::outcome(const Claim& claim, const Arm& arm, int64_t seed) const {
  return outcomes_.at(run_of(claim, arm, seed).name);
}

double Plan::rate(const Claim& claim, const Arm& arm) const {
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

std::string Plan::rate_note(const Claim& claim, double rate) const {
  if (claim.rates.size() < 3) return "";
  return rate == claim.rates.front()  ? "lowest tried"
         : rate == claim.rates.back() ? "highest tried"
                                      : "";
}

std::string Plan::sizes(const Claim& claim) const {
  const std::vector<Arm> all = arms(claim);
  if (all.empty()) return "";
  const TrainOptions run = named_run(all[0].options, o_, 0);
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

TrainOptions Plan::run_at(const Claim& claim, const Arm& arm, int64_t seed, double rate) const {
  TrainOptions options = arm.options;
  options.optim.lr *= rate;
  for (const Arm& first : arms(claim)) {
    if (first.label == arm.after) options.from = folder_of(run_of(claim, first, seed));
  }
  return named_run(options, o_, seed);
}

TrainOptions Plan::run_of(const Claim& claim, const Arm& arm, int64_t seed) const {
  return run_at(claim, arm, seed, rate(claim, arm));
}

std::vector<TrainOptions> Plan::runs_of(Stage stage) const {
  std::vector<TrainOptions> list;
  std::set<std::string> names;
  const auto add = [&](const TrainOptions& run) {
    if (!outcomes_.contains(run.name) && names.insert(run.name).second) list.push_back(run);
  };
  for (const Claim* claim : claims_) {
    for (int64_t seed = 0; seed < seeds(*claim); ++seed) {
      for (const Arm& arm : arms(*claim)) {
        const bool waits = seed > 0 && rates(*claim, arm).size() > 1;  // for the first seed
        if (arm.after.empty() != (stage != continued) || (stage == first_seed && waits)) continue;
        if (stage != first_seed) {
          add(run_of(*claim, arm, seed));
          continue;
        }
        for (const double rate : rates(*claim, arm)) add(run_at(*claim, arm, seed, rate));
      }
    }
  }
  return list;
}

}  // namespace horner
