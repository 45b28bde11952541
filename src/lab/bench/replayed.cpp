#include "lab/bench/replayed.h"

#include <ATen/Functions.h>

#include <chrono>

#include "train/step.h"

namespace horner {
namespace {

constexpr int64_t kWarm = 6;     // steps before the clock starts; the graph is recorded in them
constexpr int64_t kBatches = 4;  // that the steps take in turn

}  // namespace

ReplayedTime time_replayed(
    Model& model,
    const ModelOptions& m,
    int64_t B,
    int64_t T,
    int64_t steps,
    at::Device device,
    bool bf16
) {
  const OwnStream stream(device);
  TrainOptions o;
  o.model = m;
  o.schedule.steps = steps + kWarm;
  o.train.precision = bf16 ? "bf16" : "fp32";
  Optimizer optimizer(model, o.optim);
  Step step(model, optimizer, o, device);
  std::vector<TargetBatch> batches;
  for (int64_t i = 0; i < kBatches; ++i) {
    const at::Tensor tokens = at::randint(m.vocabulary, {B, T + 1}, at::kLong);
    Batch batch;
    batch.tokens = tokens.narrow(1, 0, T).contiguous();
    batch.targets = tokens.narrow(1, 1, T).contiguous();
    batches.push_back(find_targets(batch));
    if (device.is_cuda()) batches.back() = in_pinned_memory(std::move(batches.back()));
  }
  const auto run = [&](int64_t n) {
    for (int64_t s = 0; s < n; ++s) {
      const TargetBatch& batch = batches[size_t(s % kBatches)];
      step.run({batch}, double(batch.count));
    }
    step.read(true);  // waits for the device
  };
  run(kWarm);
  const auto start = std::chrono::steady_clock::now();
  run(steps);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return {taken.count() / double(steps), step.replayed() > 0, step.not_recorded()};
}

}  // namespace horner
