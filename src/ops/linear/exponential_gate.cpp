#include "ops/linear/exponential_gate.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <limits>

#include "core/check.h"
#include "ops/chunks.h"

namespace horner {
namespace {

// m_t = F_t + max(m_0, max_{s<=t} i_s - F_s), in fp64 because F falls without bound.   (B,T,G)
at::Tensor running_maximum(const at::Tensor& i, const at::Tensor& f, const at::Tensor& m0) {
  const at::Tensor F = f.to(at::kDouble).cumsum(1);
  const at::Tensor largest = std::get<0>((i.to(at::kDouble) - F).cummax(1));
  return F + at::maximum(largest, m0.to(at::kDouble).unsqueeze(1));
}

}  // namespace

Result exponential_gate(
    const Inputs& qkv,
    const at::Tensor& i,
    const at::Tensor& f,
    const State& state,
    const Options& options
) {
  HORNER_CHECK(
      options.causal && options.norm == "none",
      "[exponential_gate] is causal and has a normaliser of its own"
  );
  HORNER_CHECK(
      i.sizes() == f.sizes() && i.dim() == 3, "[exponential_gate] i and f must both be (B,T,G)"
  );
  HORNER_CHECK(
      !qkv.g.defined() && !qkv.cu_seqlens.defined(),
      "[exponential_gate] takes q, k, v, i and f alone"
  );
  HORNER_CHECK(
      state.empty() || state.parts.size() == 2, "[exponential_gate] a state has 2 parts, S and m"
  );
  const at::ScalarType wide = state_dtype(qkv);
  const double none = -std::numeric_limits<double>::infinity();
  const at::Tensor m0 =
      state.empty() ? at::full_like(i.select(1, 0), none, at::kDouble) : state.parts[1];
  const at::Tensor m = running_maximum(i.detach(), f.detach(), m0);
  const at::Tensor before =
      at::cat({m0.to(at::kDouble).unsqueeze(1), m.narrow(1, 0, m.size(1) - 1)}, 1);

  Inputs in = qkv;
  in.g = (f.to(at::kDouble) + (before - m)).to(wide);  // g'_t = f_t + m_{t-1} - m_t
  in.k = qkv.k.to(wide) *
         (i.to(at::kDouble) - m).exp().to(wide).unsqueeze(-1);  // k'_t = k_t e^{i_t - m_t}
  in.v = at::constant_pad_nd(qkv.v.to(wide), {0, 1}, 1.0);      // [v_t, 1]
  in.q = qkv.q.to(wide);
  Options own = options;
  own.log_norm = false;
  Result result =
      run(find_op("linear"), in, state.empty() ? State{} : State{{state.parts[0]}}, own);

  const int64_t V = qkv.v.size(3), r = qkv.q.size(2) / qkv.v.size(2);
  const at::Tensor floor =
      (-m).exp().to(wide).repeat_interleave(r, 2).unsqueeze(-1);  // e^{-m_t}  (B,T,H,1)
  const at::Tensor den = at::maximum(result.o.narrow(-1, V, 1).abs(), floor);
  result.o = (result.o.narrow(-1, 0, V) / den).to(qkv.v.scalar_type());
  if (options.final_state) result.state.parts.push_back(m.select(1, m.size(1) - 1).to(wide));
  return result;
}

}  // namespace horner
