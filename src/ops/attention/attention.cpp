#include "ops/attention/attention.h"

#include "core/check.h"
#include "ops/attention/fused.h"
#include "ops/attention/plain.h"
#include "ops/attention/step_cpu.h"
#include "ops/sample.h"

namespace horner {
namespace {

using Plain = Result (*)(const Inputs&, const State&, const Options&);

template <Plain compute>
Result form(const Inputs& in, const State& state, const Options& o, Saved*) {
  return compute(in, state, o);
}

void check(const Inputs& in, const State& state, const Options& o) {
  HORNER_CHECK(
      !has_fixed_caches(state) || in.v.size(1) == 1,
      "[attention] fixed caches take one token at a time, got {}",
      in.v.size(1)
  );
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

std::string refuses_plain(const Inputs&, const State& state, const Options& o) {
  return attention_is_plain(state, o) ? "" : "it knows no window, clamp, state or log-normaliser";
}

// Padding is masked, so it is allowed without a state; a cache would keep it.
bool pads(const Inputs&, const State& state, const Options& o) {
  return state.empty() && !o.final_state;
}

Inputs sample(const Dims& d, const Variant&, at::TensorOptions options) {
  return sample_qkv(d, options);
}

// Scores and values of half of the pairs, or of the window. The backward computes the scores again and four more products.
Flops flops(const Dims& d, const Options& o, std::string_view) {
  const double T = double(d.T),
               seen = o.window > 0 ? std::min(T, 2.0 * double(o.window + o.sinks)) : T;
  const double pairs = seen * double(d.K + d.V);
  return {pairs, 2.5 * pairs};
}

// One slot per token; C_ts = e^{x_ts} over the visible s, and eta its sum.
Recurrence recurrence(const Inputs& in, const Options& o) {
  const int64_t T = in.q.size(1);
  at::Tensor x = at::einsum("bthk,bshk->bths", {in.q, in.k}) * attention_scale(in, o);
  if (o.clamp) x = x.clamp_max(*o.clamp);
  const at::Tensor t = at::arange(T, in.q.options().dtype(at::kLong));
  const at::Tensor ago = t.view({T, 1, 1}) - t.view({1, 1, T});
  at::Tensor seen = ago >= 0;
  if (o.window > 0) seen = seen.logical_and((ago < o.window).logical_or(t < o.sinks));
  const at::Tensor C = at::where(seen, x.exp(), 0.0);
  const at::Tensor I = at::eye(T, in.k.options()).view({1, T, 1, T});
  return {at::ones_like(C.narrow(3, 0, 1)), I, C, in.v, C.sum(-1)};
}

// The settings that the contract walks.
std::vector<Variant> variants(const Options& defaults) {
  Options plain = defaults, norm = plain, window = plain, sinks = plain, clamped = plain,
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
  return {
      {"causal", plain},
      {"causal, with norm", norm},
      {"window", window},
      {"window and sinks", sinks},
      {"clamped scores", clamped},
      {"both directions", both},
      {"both directions, window", both_window},
  };
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
      .keeps_tokens = true,
      .series = true,
      .forms =
          {{.name = forms::kRecurrent, .forward = form<attention_recurrent>, .suits = never},
           kernel_form(forms::kStepKernel),
           kernel_form(forms::kParallelKernel),
           {.name = forms::kFusedStep,
            .place = Place::cpu,
            .forward = form<attention_step_cpu>,
            .traces = false,
            .types = {at::kDouble, at::kFloat, at::kBFloat16},
            .refuses = attention_step_cpu_refuses},
           step_form(form<attention_recurrent>),
           {.name = forms::kFusedParallel,
            .forward = form<attention_sdpa>,
            .refuses = refuses_plain},
           {.name = forms::kParallel, .forward = form<attention_parallel>, .suits = never},
           {.name = forms::kFusedChunked,
            .forward = form<attention_by_blocks>,
            .refuses = attention_blocks_refuse},
           {.name = forms::kChunked, .forward = form<attention_chunked>}},
      .zero_state = attention_zero_state,
      .sample = sample,
      .check = check,
      .pads = pads,
      .flops = flops,
      .recurrence = recurrence,
  };
  op.variants = variants(op.defaults);
  return op;
}

}  // namespace horner
