#include "train/limits.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <unistd.h>

#include <algorithm>

#include "core/check.h"
#include "core/device.h"
#include "core/number.h"
#include "model/size.h"
#include "train/distributed.h"

namespace horner {

double memory_of(at::Device device) {
  if (device.is_cpu()) return double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  if (!device.is_cuda()) return 0;
  return double(c10::getDeviceAllocator(device.type())
                    ->getMemoryInfo(std::max<c10::DeviceIndex>(0, device.index()))
                    .second);
}

double weight_bytes(const TrainOptions& o, int64_t processes) {
  const double n = parameters_of(o.model), R = double(processes);
  const double average = o.optim.ema > 0 ? 4 : 0;
  if (o.train.shard == "optimizer") return n * (8 + (8 + average) / R);
  if (o.train.shard != "full") return n * (16 + average);
  double largest = 0, outside = 0;  // parameters of a block; of what is not in a block
  for (int64_t l = 0; l < std::min<int64_t>(o.model.layers, int64_t(o.model.pattern.size())); ++l) {
    ModelOptions one = o.model;
    one.pattern = {o.model.pattern[size_t(l)]};
    one.layers = 1;
    const double with_one = parameters_of(one);
    one.layers = 2;
    const double block = parameters_of(one) - with_one;
    largest = std::max(largest, block);
    outside = with_one - block;
  }
  const double blocks = std::min<double>(2, double(o.model.layers)) * largest;
  return n * (16 + average) / R + 8 * (outside + blocks);
}

double least_bytes(const TrainOptions& o, const TaskShape& shape) {
  const double R = double(processes_here());
  const double weights = weight_bytes(o, int64_t(R));
  const double rows = double(o.train.batch) / double(o.train.accumulation) / R;
  const double one = rows * double(shape.T) * double(o.model.D);  // x of one layer
  const double numbers = shape.features > 0 ? 4 * double(shape.features) : 8;
  const double data = rows * double(shape.T) * numbers;  // of one batch
  return weights + data + one * double(o.model.layers) * (o.train.precision == "bf16" ? 2 : 4);
}

void check_memory(const TrainOptions& o, const TaskShape& shape) {
  const at::Device device = find_device(o.device);
  const double least = least_bytes(o, shape), most = memory_of(device);
  if (most == 0 || least <= most) return;
  throw DeviceError(
      "{} layers of D = {} with {} examples of T = {} at a time need at least {}, and {} has {}",
      o.model.layers,
      o.model.D,
      o.train.batch / o.train.accumulation,
      shape.T,
      short_bytes(least),
      device.str(),
      short_bytes(most)
  );
}

namespace {

void check_sequences(const TrainOptions& o, const TaskShape& shape, int64_t processes) {
  const int64_t n = o.train.sequence_parallel;
  HORNER_CHECK(
      processes > 0 && processes % n == 0,
      "train.sequence_parallel = {} must divide the number of processes, which is {}; torchrun "
      "starts them (docs/train.md)",
      n,
      std::max<int64_t>(processes, 1)
  );
  HORNER_CHECK(
      shape.T % n == 0, "train.sequence_parallel = {} must divide the task's T = {}", n, shape.T
  );
  const auto refuse = [&](bool bad, const char* what) {
    HORNER_CHECK(!bad, "train.sequence_parallel = {} does not go with {}", n, what);
  };
  refuse(o.train.shard == "full", "train.shard = full");
  refuse(o.train.checkpoint_activations, "train.checkpoint_activations");
  refuse(o.model.positions > 0, "learned positions (model.positions)");
  refuse(o.model.classes > 0 || shape.rebuild, "a task that reads a sequence whole");
  bool both = !shape.causal;
  for (const std::string& mixer : o.model.pattern)
    both = both || MixerSpec::parse(mixer).find("causal") == "false";
  refuse(both, "mixers that read in both directions");
}

}  // namespace

void check_processes(const TrainOptions& o, const TaskShape& shape, int64_t processes) {
  if (o.train.sequence_parallel > 1) check_sequences(o, shape, processes);
  if (o.train.shard == "none") return;
  HORNER_CHECK(
      processes > 0,
      "train.shard = {} shares out over processes, and this is one; start several with torchrun "
      "(docs/train.md)",
      o.train.shard
  );
  HORNER_CHECK(
      o.train.shard != "full" || o.train.batch % (processes * o.train.accumulation) == 0,
      "train.shard = full: train.batch = {} must be a multiple of {} processes times "
      "train.accumulation = {}",
      o.train.batch,
      processes,
      o.train.accumulation
  );
}

void check_length(const ModelOptions& model, int64_t T, at::Device device, const char* setting) {
  HORNER_CHECK(T >= 1, "{} must be at least 1, got {}", setting, T);
  const double least = 4 * double(T) * double(model.D), most = memory_of(device);
  if (most == 0 || 4 * least <= most) return;  // input and output of a layer, of its projections
  throw DeviceError(
      "{}: {} tokens of D = {} need at least {}, and {} has {}",
      setting,
      T,
      model.D,
      short_bytes(4 * least),
      device.str(),
      short_bytes(most)
  );
}

}  // namespace horner
