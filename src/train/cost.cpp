#include "train/cost.h"

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include "core/device.h"
#include "train/loss.h"
#include "train/sampler.h"

namespace horner {
namespace {

thread_local double flops = 0;

double product(const at::IntArrayRef sizes) {
  double n = 1;
  for (const int64_t size : sizes) n *= double(size);
  return n;
}

// Two operations per multiplication and addition.
void count(const at::RecordFunction& f) {
  const std::string_view name = f.name();
  const auto in = f.inputs();
  const auto tensor = [&](size_t i) -> const at::Tensor& { return in[i].toTensor(); };
  if (name == "aten::mm" || name == "aten::bmm") {
    flops += 2 * product(tensor(0).sizes()) * double(tensor(1).size(-1));
  } else if (name == "aten::addmm" || name == "aten::baddbmm") {
    flops += 2 * product(tensor(1).sizes()) * double(tensor(2).size(-1));
  } else if (name == "mkldnn::_linear_pointwise") {
    flops += 2 * product(tensor(0).sizes()) * double(tensor(1).size(0));
  } else if (name.starts_with("aten::_scaled_dot_product_") && in.size() > 4) {
    const double all = 2 * product(tensor(0).sizes()) * double(tensor(1).size(2)) * 2;
    bool causal = false;
    for (size_t i = 3; i < in.size(); ++i) causal = causal || (in[i].isBool() && in[i].toBool());
    flops += causal ? all / 2 : all;
  }
}

// Counts bytes of CPU tensors that are allocated and not freed while it lives.
struct Allocations : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    held += bytes;
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t held = 0;
};

c10::CachingDeviceAllocator::DeviceStats gpu(at::Device device) {
  return c10::getDeviceAllocator(device.type())->getDeviceStats(std::max<int>(0, device.index()));
}

}  // namespace

double count_flops(const std::function<void()>& work) {
  flops = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
                                                     [](const at::RecordFunction& f
                                                     ) -> std::unique_ptr<at::ObserverContext> {
                                                       count(f);
                                                       return nullptr;
                                                     }
  )
                                                     .needsInputs(true)
                                                     .scopes({at::RecordScope::FUNCTION}));
  work();
  at::removeCallback(handle);
  return flops;
}

Cost cost_of(const TrainOptions& o, const Task& task) {
  Cost cost;
  const auto model = make_model(o.model, uint64_t(o.seed));
  cost.parameters = model->parameters_count();
  cost.state_bytes = state_bytes(o.model, task.shape().T);
  cost.weight_bytes =
      16 * double(cost.parameters) + (o.optim.ema > 0 ? 4.0 : 0.0) * double(cost.parameters);
  Sampler sampler(task, 1);
  const TargetBatch one = find_targets(task.batch(Split::train, sampler.at(0)));
  {
    const c10::NoGradGuard no_graph;
    const double all = count_flops([&] { losses(*model, one); });
    cost.forward_flops_per_token = all / double(one.rows * one.width);  // padding costs as much
    cost.flops_per_token = 3 * cost.forward_flops_per_token;
  }
  const auto heard = std::make_shared<Allocations>();
  const c10::DebugInfoGuard listen(c10::DebugInfoKind::PROFILER_STATE, heard);
  Context context;
  context.recompute = o.train.checkpoint_activations;
  const Losses kept = losses(*model, one, context);  // holds the graph
  const double part = double(o.train.batch / o.train.accumulation);
  cost.activation_bytes = double(heard->held) * part * (o.train.precision == "bf16" ? 0.5 : 1.0);
  return cost;
}

Json Cost::json() const {
  return {
      {"parameters", parameters},
      {"state_bytes", state_bytes},
      {"forward_flops_per_token", forward_flops_per_token},
      {"flops_per_token", flops_per_token},
      {"weight_bytes", weight_bytes},
      {"activation_bytes", activation_bytes}};
}

double stated_flops(at::Device device, std::string_view precision) {
  if (!device.is_cuda()) return 0;
  static constexpr struct {
    std::string_view name;
    double bf16, fp32;
  } kStated[] = {{"H200", 989e12, 67e12}, {"H100", 989e12, 67e12}, {"A100", 312e12, 19.5e12}};
  const std::string name = describe_device(device);
  for (const auto& gpu : kStated) {
    if (name.find(gpu.name) != name.npos) return precision == "bf16" ? gpu.bf16 : gpu.fp32;
  }
  return 0;
}

double memory_now(at::Device device) {
  if (device.is_cuda()) return double(gpu(device).allocated_bytes[0].current);
  long pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return double(pages) * double(sysconf(_SC_PAGESIZE));
}

double memory_peak(at::Device device) {
  if (device.is_cuda()) return double(gpu(device).allocated_bytes[0].peak);
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_maxrss) * 1024;
}

void restart_memory_peak(at::Device device) {
  if (device.is_cuda())
    c10::getDeviceAllocator(device.type())->resetPeakStats(std::max<int>(0, device.index()));
}

}  // namespace horner
