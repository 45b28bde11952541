// Time of the plain forms on the CPU, every op, forward and forward + backward:
//   ./build/<preset>/horner_bench --benchmark_filter=linear
#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/contract.h"

namespace horner {
namespace {

struct Job {
  const Op& op;
  Variant variant;
  Dims dims;
  std::string form;
  bool backward;
};

void time_job(benchmark::State& state, const Job& job) {
  const c10::InferenceMode no_graph(!job.backward);
  const Inputs in = sample_inputs({job.op, job.variant, job.dims, at::kCPU, 0}, at::kFloat);
  Options options = job.variant.options;
  options.form = job.form;
  std::vector<at::Tensor> leaves;
  for (const Input& input : job.op.inputs) {
    const at::Tensor& x = in.*input.tensor;
    if (job.backward && x.defined()) leaves.push_back(x.requires_grad_(true));
  }
  for (auto _ : state) {
    const at::Tensor o = run(job.op, in, {}, options).o;
    if (job.backward) torch::autograd::grad({o}, leaves, {at::ones_like(o)}, {}, false, true);
    benchmark::DoNotOptimize(o);
  }
  state.counters["tokens/s"] = benchmark::Counter(
      double(job.dims.B * job.dims.T), benchmark::Counter::kIsIterationInvariantRate
  );
}

void add_job(const Job& job) {
  const Dims& d = job.dims;
  const std::string name = fmt::format(
      "{}/{}/{}/{}/T={},H={},K={},V={}",
      job.op.name,
      job.variant.name,
      job.form,
      job.backward ? "forward+backward" : "forward",
      d.T,
      d.H,
      d.K,
      d.V
  );
  benchmark::RegisterBenchmark(name.c_str(), time_job, job)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

void add_jobs() {
  for (const Op& op : ops()) {
    const bool features = op.series && !op.keeps_tokens;  // its state grows as K^order
    const Dims dims{
        .B = 1, .T = features ? 8192 : 4096, .H = 4, .G = 4, .K = features ? 16 : 64, .V = 64};
    for (const Variant& variant : op.variants) {
      if (variant.complex || (features && variant.options.order > 2)) continue;
      for (const Form& form : op.forms) {
        if (form.place == Place::cuda || form.name == forms::kStep) continue;
        add_job({op, variant, dims, std::string(form.name), false});
        add_job({op, variant, dims, std::string(form.name), true});
      }
    }
  }
}

}  // namespace
}  // namespace horner

int main(int argc, char** argv) {
  horner::add_jobs();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
