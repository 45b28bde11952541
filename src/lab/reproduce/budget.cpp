#include "lab/reproduce/budget.h"

#include <algorithm>
#include <map>

#include "core/check.h"
#include "core/spec.h"
#include "lab/run_threads.h"
#include "tasks/task.h"

namespace horner {
namespace {

constexpr double kStep = 0.3e-3, kNumber = 0.17e-9, kEager = 3e-3, kLayer = 0.5e-3,
                 kFeature = 0.15e-9;

struct TaskCost {
  double tokens = 0;  // of an example
  bool eager = false;
};

// The same with and without the task's data: if they are not here, T is the setting's, or that of the model's positions.
TaskCost cost_of(const TrainOptions& run) {
  static std::map<std::string, TaskCost> known;
  const auto [found, missing] = known.try_emplace(run.task);
  if (!missing) return found->second;
  try {
    found->second = {double(make_task(run.task)->shape().T), packs(run.task)};
  } catch (const DataError&) {
    const TypeSpec spec = TypeSpec::parse(run.task);
    const std::optional<std::string> T = spec.find("T");
    found->second.tokens = T ? std::stod(*T) : double(std::max<int64_t>(run.model.positions, 1));
    found->second.eager = spec.name == "classify_text";  // texts of many lengths
  }
  return found->second;
}

// What LUNA's learned maps take beside the layer.
double map_seconds(const TrainOptions& run, double tokens) {
  double features = 0;  // of a token, over all layers
  for (int64_t layer = 0; layer < run.model.layers; ++layer) {
    const MixerSpec spec =
        MixerSpec::parse(run.model.pattern[size_t(layer) % run.model.pattern.size()]);
    if (spec.name != "luna") continue;
    const auto number = [&](const char* name, double usual) {
      const std::optional<std::string> found = spec.find(name);
      return found ? std::stod(*found) : usual;
    };
    const double heads = number("heads", 4);
    features += heads * number("map.projections", 16) * number("map.channels", 4) *
                number("map.hidden", 64) / 64;
  }
  return kFeature * tokens * features;
}

// The runs of one arm with this number of seeds.
ClaimCost cost_of_arm(const Claim& claim, const Arm& arm, int64_t seeds) {
  ClaimCost sum;
  const double step = step_seconds(arm.options);
  const auto add = [&](int64_t runs, double share) {
    const double steps = double(runs) * share * double(arm.options.schedule.steps);
    sum.runs += runs;
    sum.steps += steps;
    sum.seconds += steps * step;
  };
  const auto rates = int64_t(arm.after.empty() ? claim.protocol.rates.size() : 0);
  const bool each_seed = claim.protocol.rate_each_seed;
  const int64_t searches = each_seed ? seeds : 1;
  if (rates > 2) add(searches * rates, 0.25);
  if (rates > 1) add(searches * (rates > 2 ? (rates + 1) / 2 : rates), 1);
  if (rates > 2 && !each_seed) add(1, 1);  // beyond the grid
  if (rates < 2 || !each_seed) add(seeds, 1);
  return sum;
}

}  // namespace

double step_seconds(const TrainOptions& run) {
  const TaskCost task = cost_of(run);
  const double tokens = double(run.train.batch) * task.tokens;
  const bool eager = task.eager || run.model.dropout > 0;
  const double seconds =
      (eager ? kEager : kStep) + kNumber * tokens * double(run.model.D * run.model.layers);
  return std::max(kLayer * double(run.model.layers), seconds) + map_seconds(run, tokens);
}

ClaimCost budget(const Claim& claim, Effort scale, int64_t seeds) {
  ClaimCost sum;
  if (scale == Effort::gpu) sum.seconds = claim.seconds;
  if (claim.arms == nullptr) return sum;
  for (const Arm& arm : claim.arms(scale)) {
    const ClaimCost own = cost_of_arm(claim, arm, seeds);
    sum.runs += own.runs;
    sum.steps += own.steps;
    sum.seconds += own.seconds;
  }
  return sum;
}

ClaimCost first_looks(const std::vector<const Claim*>& claims, Effort scale) {
  std::map<std::string, ClaimCost> arms;  // by what decides their runs
  ClaimCost sum;
  for (const Claim* claim : claims) {
    if (scale == Effort::gpu) sum.seconds += claim->seconds;
    if (claim->arms == nullptr) continue;
    for (const Arm& arm : claim->arms(scale)) {
      const ClaimCost own = cost_of_arm(*claim, arm, claim->protocol.seeds);
      ClaimCost& known = arms[to_json(arm.options).dump() + arm.after];
      if (own.seconds > known.seconds) known = own;
    }
  }
  for (const auto& [name, own] : arms) {
    sum.runs += own.runs;
    sum.steps += own.steps;
    sum.seconds += own.seconds;
  }
  return sum;
}

std::string words(const ClaimCost& b) {
  return fmt::format("{} runs, {:.0f} k steps, {:.1f} minutes", b.runs, b.steps / 1e3, b.minutes());
}

std::string first_look(const Claim& claim) {
  return "the first look takes " +
         words(budget(claim, Effort::gpu, claim.protocol.looks().front())) +
         " of one H200 (estimated)";
}

}  // namespace horner
