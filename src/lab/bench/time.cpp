#include "lab/bench/time.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "lab/bench/call.h"
#include "lab/bench/cost.h"
#include "lab/bench/errors.h"

namespace horner {
namespace {

constexpr double kDistinct = 256e6;  // at least this many bytes of states in a run of single tokens
constexpr int kFewest = 8, kMost = 64;  // calls of such a run, like the layers of a model

int calls_of(const State& state, at::Device device) {
  if (state.empty() || !device.is_cuda()) return 1;
  return std::clamp(int(kDistinct / double(state.bytes())), kFewest, kMost);
}

// The four times of one function; if a graph cannot be captured, its time stays empty.
void time_calls(
    const Timer& clock, int repeats, const Work& forward, const Work& both, BenchRow& row
) {
  const auto guarded = [&](auto function, const Work& work) {
    try {
      return function ? function(work, repeats, row.calls * row.tokens) : Times{};
    } catch (const c10::Error&) {
      return Times{};
    }
  };
  row.eager_forward = clock.eager(forward, repeats, row.calls * row.tokens);
  row.forward = guarded(clock.replay, forward);
  if (both) row.eager_both = clock.eager(both, repeats, row.calls * row.tokens);
  if (both) row.both = guarded(clock.replay, both);
  if (clock.peak_bytes != nullptr) row.bytes = clock.peak_bytes(both ? both : forward);
}

}  // namespace

BenchRow time_job(const BenchJob& job, const BenchReport& report, at::Device device) {
  const BenchOptions& options = report.options;
  BenchRow row{
      .program = "horner",
      .op = job.subject.op,
      .variant = job.subject.variant,
      .shape = job.shape};
  const at::ScalarType type = low_type(device);
  const Dims& d = job.shape.dims;
  const Inputs in = job_inputs(job, d, device, options.seed, type);
  BenchCall call(job, in, type);
  row.form = job.lazy() ? call.forward().form
                        : chosen_form(job.op, call.in, call.state, call.options).name;
  check_errors(job, device, options.seed, row);
  if (call.lazy) row.tokens = int(call.lazy->fold);
  const BenchCosts cost = costs(job.op, call.in, call.state, call.options, row.form, row.tokens);
  const auto floor = [&](const BenchCost& c) {
    return std::max(c.bytes / report.copy_rate, c.flops / report.matmul_rate);
  };
  row.floor_forward = floor(cost.forward);
  row.floor_both = floor(cost.both);
  row.binds = cost.forward.bytes / report.copy_rate >= row.floor_forward ? "bytes" : "flops";
  if (!row.failure.empty()) return row;
  call.grad = at::randn({d.B, d.T, d.H, d.V}, at::device(device).dtype(at::kFloat)).to(type);
  row.calls = calls_of(call.state, device);
  std::vector<BenchCall> layers;  // each with a state of its own
  for (int i = 0; i < row.calls; ++i) layers.emplace_back(job, in, type);
  std::vector<Result> results(layers.size());  // kept alive, so that no memory is used twice
  const auto forward = [&] {
    const at::NoGradGuard none;
    for (int t = 0; t < row.tokens;
         ++t)  // layer by layer, as in a model: no state stays in a cache
      for (size_t i = 0; i < layers.size(); ++i) results[i] = layers[i].forward();
  };
  const Work both = call.leaves.empty() ? Work() : Work([&] { call.both(); });
  Timer clock = timer(device);
  // The scans of the exponential gate cannot be captured, and after a failed capture every other one fails.
  if (call.in.i.defined()) clock.replay = nullptr;
  time_calls(clock, int(options.repeats), forward, both, row);
  return row;
}

BenchRow time_copy(const BenchJob& job, const BenchReport& report, at::Device device) {
  BenchRow row{
      .program = "torch",
      .op = job.subject.op,
      .variant = job.subject.variant,
      .shape = job.shape,
      .form = "copy of the state"};
  const at::ScalarType type = low_type(device);
  const BenchCall call(
      job, job_inputs(job, job.shape.dims, device, report.options.seed, type), type
  );
  row.calls = calls_of(call.state, device);
  std::vector<at::Tensor> from, to;
  for (int i = 0; i < row.calls; ++i) {
    for (const at::Tensor& part : call.state.parts) {
      from.push_back(part.clone());
      to.push_back(at::empty_like(part));
    }
  }
  const auto copy = [&] {
    for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
  };
  time_calls(timer(device), int(report.options.repeats), copy, {}, row);
  return row;
}

BenchRow time_cached_sdpa(const BenchJob& job, const BenchReport& report, at::Device device) {
  BenchRow row{
      .program = "torch",
      .op = job.subject.op,
      .variant = job.subject.variant,
      .shape = job.shape,
      .form = "SDPA"};
  const at::ScalarType type = low_type(device);
  const Inputs in = job_inputs(job, job.shape.dims, device, report.options.seed, type);
  std::vector<BenchCall> layers;
  row.calls = calls_of(BenchCall(job, in, type).state, device);
  for (int i = 0; i < row.calls; ++i) layers.emplace_back(job, in, type);
  const at::Tensor q = in.q.transpose(1, 2).contiguous();
  const auto attend = [&] {
    for (const BenchCall& layer : layers)
      at::scaled_dot_product_attention(q, layer.state.parts[0], layer.state.parts[1]);
  };
  time_calls(timer(device), int(report.options.repeats), attend, {}, row);
  return row;
}

BenchRow time_sdpa(std::string backend, const BenchShape& shape, const BenchReport& report) {
  BenchRow row{
      .program = "torch", .op = "attention", .variant = "softmax", .shape = shape, .form = backend};
  at::Context& context = at::globalContext();
  const bool flash = context.userEnabledFlashSDP(), cudnn = context.userEnabledCuDNNSDP(),
             memory = context.userEnabledMemEfficientSDP(), math = context.userEnabledMathSDP();
  context.setSDPUseFlash(backend == "flash");
  context.setSDPUseCuDNN(backend == "cuDNN");
  context.setSDPUseMemEfficient(false);
  context.setSDPUseMath(false);
  try {
    const Dims& d = shape.dims;
    const auto like = at::device(at::kCUDA).dtype(at::kBFloat16);
    std::vector<at::Tensor> x;
    for (const int64_t width : {d.K, d.K, d.V})
      x.push_back(at::randn({d.B, d.T, d.H, width}, like).transpose(1, 2).requires_grad_(true));
    const at::Tensor grad = at::randn({d.B, d.T, d.H, d.V}, like).transpose(1, 2);
    const auto attend = [&] {
      return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0.0, true);
    };
    const auto forward = [&] {
      const at::NoGradGuard none;
      attend();
    };
    const auto both = [&] { torch::autograd::grad({attend()}, x, {grad}); };
    time_calls(timer(at::kCUDA), int(report.options.repeats), forward, both, row);
  } catch (const std::exception& error) {
    row.failure = error.what();
    row.failure = row.failure.substr(0, row.failure.find('\n'));
  }
  context.setSDPUseFlash(flash);
  context.setSDPUseCuDNN(cudnn);
  context.setSDPUseMemEfficient(memory);
  context.setSDPUseMath(math);
  return row;
}

void measure_ceilings(BenchReport& report, at::Device device) {
  const bool cpu = device.is_cpu();
  const int repeats = cpu ? 5 : 20;
  const Timer& clock = timer(device);
  const at::Tensor a = at::zeros({cpu ? 1 << 22 : 1 << 28}, at::device(device).dtype(at::kFloat));
  at::Tensor b = at::empty_like(a);
  report.copy_rate = 2.0 * double(a.nbytes()) / clock.eager([&] { b.copy_(a); }, repeats, 1).median;
  const int64_t n = cpu ? 256 : 8192;
  const at::Tensor m = at::randn({n, n}, at::device(device).dtype(at::kFloat)).to(low_type(device));
  at::Tensor product = at::empty_like(m);
  report.matmul_rate =
      2.0 * double(n * n * n) / clock.eager([&] { at::mm_out(product, m, m); }, repeats, 1).median;
  if (clock.clock_mhz != nullptr) report.clock_mhz = clock.clock_mhz();
}

}  // namespace horner
