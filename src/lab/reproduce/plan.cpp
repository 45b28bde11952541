#include "lab/reproduce/plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "core/check.h"
#include "core/device.h"
#include "lab/reproduce/budget.h"
#include "lab/reproduce/record.h"
#include "lab/run_threads.h"
#include "train/evaluate.h"
#include "train/run_folder.h"

namespace horner {
namespace {

// The grid with two rates more at both ends, if it has three at least.
std::vector<double> with_beyond(std::vector<double> rates) {
  if (rates.size() < 3) return rates;
  for (int i = 0; i < 2; ++i) {
    rates.insert(rates.begin(), rates[0] * rates[0] / rates[1]);
    rates.push_back(rates.back() * rates.back() / rates[rates.size() - 2]);
  }
  return rates;
}

// The claim's score, on validation; NaN: the run has none, because it diverged.
double validation(const Claim& claim, const TrainResult& result) {
  const bool unit = claim.score.find('/') == std::string::npos;  // of numbers that are computed
  const ScoreName name{"valid", unit ? result.metric : ScoreName::parse(claim.score).metric};
  const double score = score_of(result, name);
  return smaller_is_better(name.metric) ? -score : score;
}

}  // namespace

// The files of a task, which is made once; none if it cannot be made here: then its run says why.
const Json& Plan::data(const std::string& task) const {
  const auto found = data_.find(task);
  if (found != data_.end()) return found->second;
  Json& files = data_[task] = Json::array();
  try {
    files = data_of(*make_task(task));
  } catch (const DataError&) {
  }
  return files;
}

// The name contains everything that decides the outcome, so equal runs of different claims are one run.
TrainOptions Plan::named_run(TrainOptions options, int64_t seed, int64_t steps) const {
  const ReproduceOptions& o = o_;
  options.seed = seed;
  options.out = o.runs;
  options.device = device_of(o);
  if (o.scale == "cpu") options.train.precision = "fp32";  // the same experiment on any device
  if (steps > 0) {
    options.schedule.steps = steps;
    options.schedule.warmup = std::min(options.schedule.warmup, steps);
  }
  options.log.tensorboard = false;
  options.checkpoint.keep = 1;
  TrainOptions named = options;  // wherever the folders lie
  named.name = "";               // of the run that it was made from
  named.from = std::filesystem::path(options.from).filename();
  options.name = run_name(named, data(options.task), o.scale + "_");
  return options;
}

std::string device_of(const ReproduceOptions& o) {
  return o.device == "auto" ? (o.scale == "gpu" ? "cuda" : "cpu") : o.device;
}

double gain(const TrainResult& result, const ScoreName& name) {
  const double score = score_of(result, name);
  if (std::isnan(score)) throw RunError("the run has no score {}", name.text());
  return smaller_is_better(name.metric) ? -score : score;
}

Plan::Plan(const std::vector<const Claim*>& claims, const ReproduceOptions& o)
    : claims_(claims), o_(o) {
  for (const Claim* claim : claims) look_[claim] = 0;
}

int64_t Plan::seeds(const Claim& claim) const {
  return o_.seeds > 0 ? o_.seeds : claim.protocol.looks().at(look_.at(&claim));
}

bool Plan::look_again(const Claim& claim) {
  if (o_.seeds > 0 || look_.at(&claim) + 1 >= claim.protocol.looks().size()) return false;
  ++look_[&claim];
  return true;
}

std::vector<Arm> Plan::arms(const Claim& claim) const {
  if (claim.arms == nullptr) return {};
  return claim.arms(o_.scale == "gpu" ? Effort::gpu : Effort::cpu);
}

void Plan::drop_restored() const {
  for (const Claim* claim : claims_) {
    const std::vector<Arm> all = arms(*claim);
    for (const Arm& arm : all) {
      const bool continues = std::any_of(all.begin(), all.end(), [&](const Arm& other) {
        return other.after == arm.label;
      });
      if (claim->measure == nullptr && !continues) continue;
      for (int64_t seed = 0; seed < seeds(*claim); ++seed) {
        for (const double rate : with_beyond(grid(*claim, arm))) {
          const std::string folder = folder_of(run_at(*claim, arm, seed, rate));
          if (restored(folder)) std::filesystem::remove_all(folder);
        }
      }
    }
  }
}

void Plan::run(const std::string& program, const RunsTell& tell) {
  drop_restored();
  for (const Stage stage : kStages) {
    std::vector<TrainOptions> now = runs_of(stage);
    const bool gpu = find_device(device_of(o_)).is_cuda();
    if (gpu) {  // a long run that begins last would run alone
      const auto seconds = [](const TrainOptions& run) {
        return step_seconds(run) * double(run.schedule.steps);
      };
      std::stable_sort(now.begin(), now.end(), [&](const TrainOptions& x, const TrainOptions& y) {
        return seconds(x) > seconds(y);
      });
    }
    const size_t at_once = o_.jobs > 0 ? size_t(o_.jobs) : gpu ? runs_on_gpu(now) : 1;
    const auto outcomes = run_all(now, at_once, program, tell);
    for (size_t i = 0; i < now.size(); ++i) outcomes_[now[i].name] = outcomes[i];
  }
}

void Plan::read() {
  for (const Stage stage : kStages) {
    for (const TrainOptions& run : runs_of(stage))
      outcomes_[run.name] =
          finished(run) ? RunOutcome{read_result(folder_of(run)), ""} : RunOutcome{{}, kUnfinished};
  }
}

double Plan::searched(const Claim& claim, const Arm& arm) const {
  double best = NAN;
  for (const Tried& t : tried(claim, arm, kSearch)) best = std::fmax(best, t.score);
  return best;
}

const Arm* Plan::guesses(const Claim& claim, const std::vector<Arm>& arms) const {
  const Protocol& protocol = claim.protocol;
  if (claim.measure != nullptr || protocol.rate_each_seed || protocol.rates.size() < 3 ||
      !claim.score.starts_with("test/"))
    return nullptr;
  for (const Expectation& e : claim.expects) {
    if (of_shares(e.kind)) return nullptr;
  }
  const bool small = o_.scale == "cpu" && protocol.chance_cpu > 0;
  const double chance = small ? protocol.chance_cpu : protocol.chance;
  const Arm* found = nullptr;
  for (const Arm& arm : arms) {
    const double best = searched(claim, arm);
    if (std::isnan(best) || !arm.after.empty()) return nullptr;  // not searched, or it failed
    const bool must =
        std::any_of(claim.expects.begin(), claim.expects.end(), [&](const Expectation& e) {
          return must_learn(arm.label, e, protocol);
        });
    if (must && found == nullptr && !has_begun(best, chance)) found = &arm;
  }
  return found;
}

bool Plan::all_finished(const Claim& claim) const {
  const std::vector<Arm> all = arms(claim);
  if (guesses(claim, all) != nullptr) return true;
  for (const Arm& arm : all) {
    for (int64_t seed = 0; seed < seeds(claim); ++seed) {
      if (!finished(run_of(claim, arm, seed))) return false;
    }
  }
  return true;
}

const RunOutcome& Plan::outcome(const Claim& claim, const Arm& arm, int64_t seed) const {
  return outcomes_.at(run_of(claim, arm, seed).name);
}

std::vector<double> Plan::grid(const Claim& claim, const Arm& arm) const {
  const std::vector<double>& rates = claim.protocol.rates;
  return rates.empty() || !arm.after.empty() ? std::vector<double>{1} : rates;
}

std::vector<Plan::Tried> Plan::tried(const Claim& claim, const Arm& arm, int64_t seed) const {
  const std::vector<double> rates = with_beyond(grid(claim, arm));
  std::vector<Tried> list;
  for (const double rate : rates) {
    const auto found = outcomes_.find(run_at(claim, arm, seed, rate).name);
    if (found == outcomes_.end() || !found->second.failure.empty()) continue;
    const double score = validation(claim, found->second.result);
    if (std::isfinite(score)) list.push_back({rate, score});
  }
  return list;
}

double Plan::rate(const Claim& claim, const Arm& arm, int64_t seed) const {
  double chosen = 1, best = NAN;
  for (const Tried& t : tried(claim, arm, claim.protocol.rate_each_seed ? seed : kSearch)) {
    if (t.score <= best) continue;
    best = t.score;
    chosen = t.rate;
  }
  return chosen;
}

std::string Plan::rate_note(const Claim& claim, const Arm& arm, double rate) const {
  const std::vector<Tried> all = tried(claim, arm, searching(claim)[0]);
  if (grid(claim, arm).size() < 3 || all.empty()) return "";
  return rate == all.front().rate ? "lowest tried" : rate == all.back().rate ? "highest tried" : "";
}

// By the loss on validation: an accuracy that is still that of guessing ranks nothing.
std::vector<double> Plan::better_half(const Claim& claim, const Arm& arm, int64_t seed) const {
  std::vector<double> rates = grid(claim, arm);
  if (rates.size() < 3) return rates;
  const auto loss = [&](double rate) {
    const auto found = outcomes_.find(quarter_run(claim, arm, seed, rate).name);
    if (found == outcomes_.end() || !found->second.failure.empty()) return double(INFINITY);
    const double value = found->second.result.valid.value("loss");
    return std::isnan(value) ? double(INFINITY) : value;
  };
  std::stable_sort(rates.begin(), rates.end(), [&](double x, double y) {
    return loss(x) < loss(y);
  });
  rates.resize((rates.size() + 1) / 2);
  return rates;
}

std::optional<double> Plan::beyond_edge(const Claim& claim, const Arm& arm) const {
  const std::vector<double> rates = grid(claim, arm), wide = with_beyond(rates);
  const std::vector<Tried> all = tried(claim, arm, kSearch);
  if (rates.size() < 3 || all.empty()) return {};
  const double best = rate(claim, arm, kSearch);
  const auto at = std::find(wide.begin(), wide.end(), best);
  if (best <= std::min(rates.front(), all.front().rate) && at != wide.begin()) return *(at - 1);
  if (best >= std::max(rates.back(), all.back().rate) && at + 1 != wide.end()) return *(at + 1);
  return {};
}

std::string Plan::sizes(const Claim& claim) const {
  const std::vector<Arm> all = arms(claim);
  if (all.empty()) return "";
  const TrainOptions run = named_run(all[0].options, 0, o_.steps);
  std::string text = fmt::format(
      "; {}, {} layers, D = {}, {} steps of {} examples",
      run.task,
      run.model.layers,
      run.model.D,
      run.schedule.steps,
      run.train.batch
  );
  if (o_.steps > 0) text += fmt::format(" instead of {}", all[0].options.schedule.steps);
  if (!claim.protocol.rates.empty()) {
    std::vector<double> rates = claim.protocol.rates;
    for (double& rate : rates) rate *= run.optim.lr;
    text += fmt::format(
        ", learning rates {:.3g}, the best on validation{}",
        fmt::join(rates, ", "),
        claim.protocol.rate_each_seed ? " of each seed" : ""
    );
  }
  return text;
}

TrainOptions Plan::run_at(const Claim& claim, const Arm& arm, int64_t seed, double rate) const {
  TrainOptions options = arm.options;
  options.optim.lr *= rate;
  for (const Arm& first : arms(claim)) {
    if (first.label == arm.after) options.from = folder_of(run_of(claim, first, seed));
  }
  const int64_t searched = claim.first_seed + 500;  // also of --confirm
  return named_run(options, seed == kSearch ? searched : first_seed(claim) + seed, o_.steps);
}

std::vector<int64_t> Plan::searching(const Claim& claim) const {
  if (!claim.protocol.rate_each_seed) return {kSearch};
  std::vector<int64_t> all(static_cast<size_t>(seeds(claim)));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TrainOptions Plan::run_of(const Claim& claim, const Arm& arm, int64_t seed) const {
  return run_at(claim, arm, seed, rate(claim, arm, seed));
}

// A whole schedule of a quarter of the steps.
TrainOptions Plan::quarter_run(const Claim& claim, const Arm& arm, int64_t seed, double rate)
    const {
  TrainOptions options = run_at(claim, arm, seed, rate);
  options.schedule.steps = std::max<int64_t>(1, options.schedule.steps / 4);
  options.schedule.warmup = std::min(options.schedule.warmup / 4, options.schedule.steps);
  options.eval.lengths.clear();
  options.train.target = 0;
  return named_run(options, options.seed, 0);
}

std::vector<TrainOptions> Plan::runs_of(Stage stage) const {
  std::vector<TrainOptions> list;
  std::set<std::string> names;
  const auto add = [&](const TrainOptions& run) {
    if (!outcomes_.contains(run.name) && names.insert(run.name).second) list.push_back(run);
  };
  for (const Claim* claim : claims_) {
    const std::vector<Arm> all = arms(*claim);
    const bool seeds_run = stage == judged || stage == continued;
    if (seeds_run && guesses(*claim, all) != nullptr) continue;
    for (const Arm& arm : all) {
      const size_t rates = grid(*claim, arm).size();
      if (arm.after.empty() != (stage != continued)) continue;
      if (stage == quarter && rates > 2) {
        for (const int64_t seed : searching(*claim)) {
          for (const double rate : grid(*claim, arm)) add(quarter_run(*claim, arm, seed, rate));
        }
      } else if (stage == search && rates > 1) {
        for (const int64_t seed : searching(*claim)) {
          for (const double rate : better_half(*claim, arm, seed))
            add(run_at(*claim, arm, seed, rate));
        }
      } else if ((stage == widened || stage == widened_again) && !claim->protocol.rate_each_seed) {
        if (const auto rate = beyond_edge(*claim, arm)) add(run_at(*claim, arm, kSearch, *rate));
      } else if (seeds_run) {
        for (int64_t seed = 0; seed < seeds(*claim); ++seed) add(run_of(*claim, arm, seed));
      }
    }
  }
  return list;
}

}  // namespace horner
