#include "ops/linear/exponential_gate.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <limits>

#include "ops/chunks.h"

namespace horner {
namespace {

constexpr double kReset =
    -1e4;  // a reset (-inf) becomes this, so that F stays finite; e^-10000 is 0

// m_0 and m_t = F_t + max(m_0, max_{s<=t} i_s - F_s), in fp64 because F falls without bound.
// (B,T+1,G). Inside, time is the last dimension, which a GPU scans in parallel.
at::Tensor running_maximum(const at::Tensor& i, const at::Tensor& f, const at::Tensor& m0) {
  const auto rows = [](const at::Tensor& x) {
    return x.to(at::kDouble).transpose(1, 2).contiguous();  // (B,G,T)
  };
  const at::Tensor start = m0.to(at::kDouble).unsqueeze(2), F = rows(f).clamp_min(kReset).cumsum(2);
  const at::Tensor largest = std::get<0>((rows(i) - F).cummax(2));
  return at::cat({start, F + at::maximum(largest, start)}, 2).transpose(1, 2).contiguous();
}

at::Tensor nothing_seen(const at::Tensor& i) {
  const double none = -std::numeric_limits<double>::infinity();
  return at::full({i.size(0), i.size(2)}, none, i.options().dtype(at::kDouble));
}

}  // namespace

Stabilised stabilise(const Inputs& in, const State& state) {
  const at::ScalarType wide = state_dtype(in);
  const at::Tensor m0 = state.empty() ? nothing_seen(in.i) : state.parts[1].detach();
  const at::Tensor all = running_maximum(in.i.detach(), in.g.detach(), m0);
  const int64_t T = in.i.size(1);
  const at::Tensor before = all.narrow(1, 0, T), m = all.narrow(1, 1, T);
  return {
      (in.g.to(at::kDouble) + (before - m)).to(wide),
      (in.i.to(at::kDouble) - m).to(wide),
      (-m).exp().to(wide),
      all.select(1, T).to(wide)};
}

Inputs without_gate(const Inputs& in, const Stabilised& s) {
  const at::ScalarType wide = state_dtype(in);
  Inputs plain;
  plain.q = in.q.to(wide);
  plain.k = in.k.to(wide) * s.gain.exp().unsqueeze(-1);       // k'_t = k_t e^{i_t - m_t}
  plain.v = at::constant_pad_nd(in.v.to(wide), {0, 1}, 1.0);  // [v_t, 1]
  plain.g = s.g;
  plain.lengths = in.lengths;
  return plain;
}

Result bounded(const Result& y, const Stabilised& s, const Inputs& in) {
  const int64_t V = in.v.size(3), r = in.q.size(2) / in.v.size(2);
  const at::Tensor floor = s.floor.repeat_interleave(r, 2).unsqueeze(-1);  // e^{-m_t}  (B,T,H,1)
  const at::Tensor den = at::maximum(y.o.narrow(-1, V, 1).abs(), floor);
  Result result;
  result.o = (y.o.narrow(-1, 0, V) / den).to(in.v.scalar_type());
  if (!y.state.empty()) result.state.parts = {y.state.parts[0], s.last};
  return result;
}

}  // namespace horner
