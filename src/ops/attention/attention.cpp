#include "ops/attention/attention.h"

#include "core/check.h"
#include "ops/attention/fused.h"
#include "ops/attention/plain.h"
#include "ops/attention/step_cpu.h"
#include "ops/sample.h"

namespace horner {
namespace {

// One token on a CPU has a loop of its own; form = recurrent asks for the definition.
Result recurrent(const Inputs& in, const State& state, const Options& o) {
  const bool step = o.form != "recurrent" && attention_step_cpu_refuses(in, state, o).empty();
  return (step ? attention_step_cpu : attention_recurrent)(in, state, o);
}

Result parallel(const Inputs& in, const State& state, const Options& o) {
  return (attention_is_plain(state, o) ? attention_sdpa : attention_parallel)(in, state, o);
}

Result chunked(const Inputs& in, const State& state, const Options& o) {
  const bool fused = attention_blocks_refuse(in, state, o).empty();
  return (fused ? attention_by_blocks : attention_chunked)(in, state, o);
}

void check(const Inputs&, const State&, const Options& o) {
  HORNER_CHECK(
      o.window >= 0, "[attention] window must be at least 0 (0: no window), got {}", o.window
  );
  HORNER_CHECK(o.sinks >= 0, "[attention] sinks must be at least 0, got {}", o.sinks);
  HORNER_CHECK(
      o.sinks == 0 || o.window > 0,
      "[attention] sinks = {} needs a window; without one all is visible",
      o.sinks
  );
}

std::string_view choose(const Inputs&, const State& state, const Options& o) {
  return attention_is_plain(state, o) ? "parallel" : "chunked";
}

// Padding is masked; a cache would keep it.
bool pads(const Inputs&, const State& state, const Options& o) {
  return state.empty() && !o.final_state;
}

Inputs sample(const Dims& d, const Variant&, at::TensorOptions options) {
  return sample_qkv(d, options);
}

}  // namespace

Op attention_op() {
  Op op{
      .name = "attention",
      .equation = "o_t = softmax(scale q_t K^T) V over all, a window, or both directions",
      .inputs = {kQ, kK, kV},
      .options =
          {"form",
           "chunk",
           "scale",
           "causal",
           "window",
           "sinks",
           "clamp",
           "log_norm",
           "final_state"},
      .kernels = {"step kernel", "parallel kernel"},
      .recurrent = recurrent,
      .parallel = parallel,
      .chunked = chunked,
      .zero_state = attention_zero_state,
      .sample = sample,
      .check = check,
      .choose = choose,
      .pads = pads,
  };
  Options plain = op.defaults, norm = plain, window = plain, sinks = plain, clamped = plain,
          both = plain, both_window = plain;
  norm.log_norm = true;
  window.window = 5;
  sinks.window = 4;
  sinks.sinks = 3;
  sinks.log_norm = true;
  clamped.clamp = 3;
  both.causal = false;
  both_window.causal = false;
  both_window.window = 3;
  op.variants = {
      {"causal", plain},
      {"causal, with norm", norm},
      {"window", window},
      {"window and sinks", sinks},
      {"clamped scores", clamped},
      {"both directions", both},
      {"both directions, window", both_window},
  };
  return op;
}

}  // namespace horner
