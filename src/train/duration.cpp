#include "train/duration.h"

#include <ATen/Context.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "core/device.h"
#include "core/number.h"
#include "train/step.h"

namespace horner {
namespace {

constexpr double kMostParameters = 2e8;  // of a model that is made just to be timed
constexpr int kWarm = 2, kTimed = 3;

double at_most(at::Device device) { return device.is_cuda() ? 1e13 : 2e10; }  // FLOPs of a step

// Seconds of a step of `o`, whose batch was made small.
double time_step(const TrainOptions& o, const Task& task, at::Device device) {
  const auto model = make_model(o.model, uint64_t(o.seed));
  model->to(device);
  Optimizer optimizer(*model, o.optim);
  Step step(*model, optimizer, o, device);
  const int64_t size = task.segments(Split::train).at(0);
  std::vector<int64_t> indices(size_t(std::min(o.train.batch, size)));  // in any order
  std::iota(indices.begin(), indices.end(), 0);
  std::vector<double> seconds;
  for (int i = 0; i < kWarm + kTimed; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<TargetBatch> parts = {training_batch(task, indices, device)};
    step.run(parts, double(parts[0].count));
    step.ask();
    step.read(true);
    const auto end = std::chrono::steady_clock::now();
    if (i >= kWarm) seconds.push_back(std::chrono::duration<double>(end - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kTimed / 2];
}

// In steps: a forward costs a third of a step.
double evaluations(const TrainOptions& o, const Task& task) {
  const auto steps_of = [&](Split split) {
    const int64_t size = task.size(split);
    const int64_t examples = o.eval.examples > 0 ? std::min(o.eval.examples, size) : size;
    return double(examples) / double(o.train.batch) / 3;
  };
  const int64_t often = o.eval.every > 0 ? o.schedule.steps / o.eval.every : 0;
  return double(std::max<int64_t>(often, 1)) * steps_of(Split::valid) + steps_of(Split::test);
}

}  // namespace

Duration duration_of(const TrainOptions& o, const Task& task, const Cost& cost) {
  Duration d;
  d.step = d.total = std::nan("");
  const at::Device device = find_device(o.device);
  const double tokens = double(o.train.batch * task.shape().T);
  const double flops = cost.flops_per_token * tokens, share = at_most(device) / flops;
  if (std::isnan(flops) || double(cost.parameters) > kMostParameters ||
      share * double(o.train.batch) < 0.1) {
    d.why = "too large to be tried here";
    return d;
  }
  TrainOptions small = o;
  small.train.batch =
      std::clamp<int64_t>(int64_t(std::min(share, 1.0) * double(o.train.batch)), 1, o.train.batch);
  small.train.accumulation = 1;
  small.schedule.steps = std::max<int64_t>(o.schedule.steps, kWarm + kTimed);
  d.step = time_step(small, task, device) * double(o.train.batch) / double(small.train.batch);
  d.total = d.step * (double(o.schedule.steps) + evaluations(o, task));
  return d;
}

Json Duration::json() const {
  return {
      {"seconds_per_step", number_or_null(step)},
      {"seconds", number_or_null(total)},
      {"not_measured", why}};
}

}  // namespace horner
