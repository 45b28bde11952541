#include "ops/linear/linear.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

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

Result recurrent(const Inputs& in, const State& state, const Options& options) {
  return recurrent_sum(weights(in, options), in, state, options);
}

Result parallel(const Inputs& in, const State& state, const Options& options) {
  return parallel_sum(weights(in, options), in, state, options);
}

Result chunked(const Inputs& in, const State& state, const Options& options) {
  return chunked_sum(weights(in, options), in, state, options);
}

State zero_state(const Inputs& in, const c10::SymInt&, const Options& options) {
  return zero_sum(in.k.sym_size(3), in, options);
}

// k = 0 writes nothing, and g = 0 forgets nothing.
bool pads(const Inputs&, const State&, const Options&) { return true; }

Inputs sample(const Dims& d, const Variant& variant, at::TensorOptions options) {
  Inputs in = sample_qkv(d, options);
  in.g = sample_decay(d, variant.gate, options);
  if (variant.options.norm == "sum") {  // a sum normaliser wants positive features
    in.q = in.q.abs();
    in.k = in.k.abs();
  }
  return in;
}

}  // namespace

Op linear_op() {
  Op op{
      .name = "linear",
      .equation = "S_t = diag(a_t) S_{t-1} + k_t^T v_t,  o_t = scale q_t S_t",
      .inputs = {kQ, kK, kV, kMaybeG},
      .options = {"form", "chunk", "scale", "causal", "norm", "eps", "log_norm", "final_state"},
      .kernels = {"chunked kernel", "recurrent kernel"},
      .recurrent = recurrent,
      .parallel = parallel,
      .chunked = chunked,
      .zero_state = zero_state,
      .sample = sample,
      .pads = pads,
  };
  Options plain = op.defaults, both = plain, sum = plain, both_sum = plain;
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
      {"both directions", both},
      {"both, decay per head", both, "head"},
      {"both, decay per key", both_sum, "key"},
  };
  return op;
}

}  // namespace horner
