#include "ops/linear/linear.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "core/check.h"
#include "ops/linear/exponential_gate.h"
#include "ops/sample.h"
#include "ops/weighted_sum.h"

namespace horner {
namespace {

Weights weights(const Inputs& in, const Options& options) {
  const auto same = [](const at::Tensor& x) { return x; };
  return {
      .phi = same,
      .psi = same,
      .decay = same,
      .pairs = decayed_products,
      .product = [](const at::Tensor& q,
                    const at::Tensor& k) { return at::matmul(q, k.transpose(-1, -2)); },
      .scale = options.scale.value_or(1.0),
      .features = double(in.k.size(3)),
  };
}

using SumForm = Result (*)(const Weights&, const Inputs&, const State&, const Options&);

template <SumForm sum>
Result compute(const Inputs& in, const State& state, const Options& options, Saved*) {
  if (!in.i.defined()) return sum(weights(in, options), in, state, options);
  const Stabilised s = stabilise(in, state);
  const Inputs plain = without_gate(in, s);
  Options own = options;
  own.norm = "none";
  const State first = state.empty() ? State{} : State{{state.parts[0]}};
  return bounded(sum(weights(plain, own), plain, first, own), s, in);
}

State zero_state(const Inputs& in, const c10::SymInt&, const Options& options) {
  State state = zero_sum(in.k.sym_size(3), in, options);
  if (in.i.defined()) state.parts.push_back(state.parts[0].select(3, 0).select(2, 0).log());
  return state;  // with m = log 0
}

void check(const Inputs& in, const State&, const Options& options) {
  HORNER_CHECK(
      in.i.defined() == (options.norm == "bounded"),
      "[linear] i and norm = bounded go together: e^i overflows where nothing divides it"
  );
  HORNER_CHECK(
      !in.i.defined() || (in.g.defined() && in.g.dim() == 3 && options.causal),
      "[linear] i needs g (B,T,G), the log of the forget gate, and causal = true"
  );
}

// k = 0 writes nothing and g = 0 forgets nothing. But i = 0 may raise m, the scale of the stored state.
bool pads(const Inputs& in, const State&, const Options& options) {
  return !in.i.defined() || !options.final_state;
}

State absolute(const State& state) {
  if (state.parts.size() < 2) return state;
  return {{state.parts[0] * state.parts[1].exp().unsqueeze(-1).unsqueeze(-1)}};  // S e^m
}

Inputs sample(const Dims& d, const Variant& variant, at::TensorOptions options) {
  Inputs in = sample_qkv(d, options);
  const bool exponential = variant.gate == "exponential";
  in.g = sample_decay(d, exponential ? "head" : variant.gate, options);
  // Even rows of the batch have sums above 1, odd rows below 1: no sum is near the kink of max(|sum|, 1).
  if (exponential) {
    const at::Tensor even = at::arange(d.B, options).remainder(2) == 0;
    in.i = at::randn({d.B, d.T, d.G}, options) +
           at::where(even, 3.0, -9.0).to(options.dtype()).view({-1, 1, 1});
  }
  if (variant.options.norm != "none") {  // a sum normaliser needs positive features
    in.q = in.q.abs();
    in.k = in.k.abs();
  }
  return in;
}

// Chunks of C = 64: pairs inside a chunk, and the state read and written.
Flops flops(const Dims& d, const Options&, std::string_view) {
  const double K = double(d.K), V = double(d.V), C = 64;
  return {2 * C * (K + V) + 4 * K * V, 6 * C * (K + V) + 10 * K * V};
}

Recurrence recurrence(const Inputs& in, const Options& o) {
  Recurrence r{diagonal_decay(in).exp(), in.k, o.scale.value_or(1.0) * in.q, in.v, {}};
  if (o.norm == "sum") r.eta = weight_sums(weights(in, o), in, o);
  return r;
}

}  // namespace

Op linear_op() {
  Op op{
      .name = "linear",
      .equation = "S_t = diag(a_t) S_{t-1} + k_t^T v_t,  o_t = scale q_t S_t",
      .inputs = {kQ, kK, kV, kMaybeG, kMaybeI},
      .options = {"form", "chunk", "scale", "causal", "norm", "eps", "log_norm", "final_state"},
      .forms =
          {{.name = forms::kRecurrent, .forward = compute<recurrent_sum>, .suits = never},
           kernel_form(forms::kChunkedKernel),
           kernel_form(forms::kRecurrentKernel),
           step_form(compute<recurrent_sum>),
           {.name = forms::kParallel, .forward = compute<parallel_sum>, .suits = never},
           {.name = forms::kChunked, .forward = compute<chunked_sum>}},
      .zero_state = zero_state,
      .sample = sample,
      .check = check,
      .pads = pads,
      .flops = flops,
      .recurrence = recurrence,
      .absolute = absolute,
  };
  Options plain = op.defaults, both = plain, sum = plain, both_sum = plain, bounded = plain;
  bounded.norm = "bounded";
  both.causal = false;
  sum.norm = "sum";
  sum.log_norm = true;
  both_sum.causal = false;
  both_sum.norm = "sum";
  op.variants = {
      {"no decay", plain},
      {"decay per head", plain, "head"},
      {"decay per key", plain, "key"},
      {"sum norm", sum},
      {"sum norm, decay per head", sum, "head"},
      {"exponential gate", bounded, "exponential"},
      {"both directions", both},
      {"both, decay per head", both, "head"},
      {"both, decay per key", both_sum, "key"},
  };
  return op;
}

}  // namespace horner
