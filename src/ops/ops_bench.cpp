// Time of the plain forms on the CPU, every op: ./build/<preset>/horner_bench --benchmark_filter=linear
#include <benchmark/benchmark.h>

#include <c10/core/InferenceMode.h>

#include "ops/contract.h"

namespace horner {
namespace {

void time_form(benchmark::State& state, const Op& op, const Variant& variant, const Dims& dims, const char* form) {
  const c10::InferenceMode no_graph;
  const Inputs in = sample_inputs({op, variant, dims, at::kCPU, 0}, at::kFloat);
  Options options = variant.options;
  options.form = form;
  for (auto _ : state) benchmark::DoNotOptimize(run(op, in, {}, options).o);
  state.counters["tokens/s"] = benchmark::Counter(
      double(dims.B * dims.T), benchmark::Counter::kIsIterationInvariantRate
  );
}

void add(const Op& op, const Variant& variant, const Dims& dims, const char* form) {
  const std::string name = fmt::format(
      "{}/{}/{}/T={},H={},K={},V={}", op.name, variant.name, form, dims.T, dims.H, dims.K, dims.V
  );
  benchmark::RegisterBenchmark(name.c_str(), [=, &op](benchmark::State& state) {
    time_form(state, op, variant, dims, form);
  })->Unit(benchmark::kMillisecond)->UseRealTime();
}

const bool kRegistered = [] {
  for (const Op& op : ops()) {
    const bool features = op.name == "power";  // its state grows as K^order
    const Dims dims{.B = 1, .T = features ? 8192 : 4096, .H = 4, .G = 4, .K = features ? 16 : 64, .V = 64};
    for (const Variant& variant : op.variants) {
      if (features && variant.options.order > 2) continue;
      for (const char* form : {"recurrent", "parallel", "chunked"}) {
        const bool cubic = op.name == "delta" && std::string_view(form) == "parallel";
        if (!cubic && !(features && std::string_view(form) == "recurrent")) add(op, variant, dims, form);
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace horner
