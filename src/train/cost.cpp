#include "train/cost.h"

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "core/device.h"
#include "core/number.h"
#include "model/size.h"
#include "train/distributed.h"
#include "train/limits.h"
#include "train/loss.h"

namespace horner {
namespace {

constexpr int64_t kLongest = 1 << 20;  // tokens of an example that is tried here

thread_local double flops = 0;
thread_local bool shares = false;

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

// What one example costs in a model of so many layers, measured.
struct OneExample {
  double flops = 0, bytes = 0, tokens = 1;
};

static OneExample measure(const TrainOptions& o, const TargetBatch& one, int64_t layers) {
  ModelOptions options = o.model;
  options.layers = layers;
  const auto model = make_model(options, uint64_t(o.seed));
  OneExample m;
  m.tokens = double(one.rows * one.width);  // padding costs as much
  {
    const c10::NoGradGuard no_graph;
    m.flops = count_flops([&] { losses(*model, one); });
  }
  const auto heard = std::make_shared<Allocations>();
  const c10::DebugInfoGuard listen(c10::DebugInfoKind::PROFILER_STATE, heard);
  Context context;
  context.recompute = o.train.checkpoint_activations;
  const Losses kept = losses(*model, one, context);  // holds the graph
  m.bytes = double(heard->held);
  return m;
}

Cost cost_of(const TrainOptions& o, const Task& task, int64_t processes) {
  Cost cost;
  cost.processes = processes > 0 ? processes : processes_here();
  cost.parameters = int64_t(parameters_of(o.model));
  cost.weight_bytes = (o.optim.ema > 0 ? 20.0 : 16.0) * double(cost.parameters);
  cost.weight_bytes_each = weight_bytes(o, cost.processes);
  // Layers cost the same each time the pattern comes again: at most three patterns are made and measured.
  const int64_t P = std::max<int64_t>(1, int64_t(o.model.pattern.size())), L = o.model.layers;
  const int64_t few = L < 3 * P ? L : P + L % P, again = (L - few) / P;
  TrainOptions small = o;
  small.model.layers = again > 0 ? few + P : few;
  small.train.batch = small.train.accumulation = 1;
  if (task.shape().T > kLongest || least_bytes(small, task.shape()) > memory_of(at::kCPU)) {
    const double unknown = std::nan("");
    cost.forward_flops_per_token = cost.flops_per_token = cost.activation_bytes = unknown;
    cost.activation_bytes_each = unknown;
    return cost;
  }
  cost.state_bytes = state_bytes(o.model, task.shape().T);
  const TargetBatch one = find_targets(task.batch(Split::train, {0}));
  OneExample m = measure(o, one, few);
  if (again > 0) {
    const OneExample longer = measure(o, one, few + P);
    m.flops += double(again) * (longer.flops - m.flops);
    m.bytes += double(again) * (longer.bytes - m.bytes);
  }
  cost.forward_flops_per_token = m.flops / m.tokens;
  cost.flops_per_token = 3 * cost.forward_flops_per_token;
  const double part = double(o.train.batch / o.train.accumulation);
  cost.activation_bytes = m.bytes * part * (o.train.precision == "bf16" ? 0.5 : 1.0);
  cost.activation_bytes_each = cost.activation_bytes / double(cost.processes);
  return cost;
}

Json Cost::json() const {
  return {
      {"parameters", parameters},
      {"state_bytes", state_bytes},
      {"forward_flops_per_token", number_or_null(forward_flops_per_token)},
      {"flops_per_token", number_or_null(flops_per_token)},
      {"weight_bytes", weight_bytes},
      {"activation_bytes", number_or_null(activation_bytes)},
      {"processes", processes},
      {"weight_bytes_each", weight_bytes_each},
      {"activation_bytes_each", number_or_null(activation_bytes_each)}};
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

SharedDevice::SharedDevice() { shares = true; }
SharedDevice::~SharedDevice() { shares = false; }

double memory_peak(at::Device device) {
  if (device.is_cuda() && shares) return std::nan("");
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
