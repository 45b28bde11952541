#include "ops/linear/exponential_gate.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "ops/chunks.h"
#include "ops/kernel.h"
#include "ops/linear/linear.h"

namespace horner {
namespace {

// m_0 and m_t = F_t + max(m_0, max_{s<=t} i_s - F_s), in fp64 because F falls without bound.
// (B,T+1,G). Time is innermost in between: a GPU scans it in parallel there.
at::Tensor running_maximum(const at::Tensor& i, const at::Tensor& f, const at::Tensor& m0) {
  const auto rows = [](const at::Tensor& x) {
    return x.to(at::kDouble).transpose(1, 2).contiguous();  // (B,G,T)
  };
  const at::Tensor start = m0.to(at::kDouble).unsqueeze(2), F = rows(f).cumsum(2);
  if (F.size(2) == 0) return start.transpose(1, 2);
  const at::Tensor largest = std::get<0>((rows(i) - F).cummax(2));
  return at::cat({start, F + at::maximum(largest, start)}, 2).transpose(1, 2).contiguous();
}

struct Maxima {
  at::Tensor before, m;  // m_{t-1} and m_t   (B,T,G)
  at::Tensor last;       // (B,G), or (n,G) of a packed batch
};

Maxima maxima(const Inputs& in, const at::Tensor& i, const at::Tensor& f, const at::Tensor& m0) {
  std::vector<int64_t> starts = {0, i.size(1)};
  if (in.cu_seqlens.defined()) {
    const at::Tensor all = in.cu_seqlens.to(at::kCPU, at::kLong).contiguous();
    starts.assign(all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + all.numel());
    HORNER_CHECK(
        starts.front() == 0 && starts.back() == i.size(1) &&
            std::is_sorted(starts.begin(), starts.end()),
        "[exponential_gate] cu_seqlens must rise from 0 to T = {}",
        i.size(1)
    );
  }
  std::vector<at::Tensor> before, m, last;
  for (size_t j = 0; j + 1 < starts.size(); ++j) {
    const int64_t T = starts[j + 1] - starts[j];
    const at::Tensor row = in.cu_seqlens.defined() ? m0.narrow(0, int64_t(j), 1) : m0;
    const at::Tensor all =
        running_maximum(i.narrow(1, starts[j], T), f.narrow(1, starts[j], T), row);
    before.push_back(all.narrow(1, 0, T));
    m.push_back(all.narrow(1, 1, T));
    last.push_back(all.select(1, T));
  }
  return {at::cat(before, 1), at::cat(m, 1), at::cat(last, 0)};
}

at::Tensor nothing_seen(int64_t rows, const at::Tensor& i) {
  const double none = -std::numeric_limits<double>::infinity();
  return at::full({rows, i.size(2)}, none, i.options().dtype(at::kDouble));
}

// What the kernels compute whole, g = f and beta = i: no op of THE list.
const Op& gated_op() {
  static const Op op = [] {
    Op gated = linear_op();
    gated.name = "exponential_gate";
    gated.inputs = {kQ, kK, kV, kG, kBeta};
    gated.recurrent = gated.parallel = gated.chunked = nullptr;
    gated.zero_state = [](const Inputs& in, const c10::SymInt& tokens, const Options& options) {
      State state = linear_op().zero_state(in, tokens, options);
      state.parts.push_back(state.parts[0].select(3, 0).select(2, 0).log());  // m = -inf
      return state;
    };
    return gated;
  }();
  return op;
}

}  // namespace

Stabilised stabilise(
    const Inputs& in, const at::Tensor& i, const at::Tensor& f, const State& state
) {
  const at::ScalarType wide = state_dtype(in);
  const int64_t rows = in.cu_seqlens.defined() ? in.cu_seqlens.size(0) - 1 : i.size(0);
  const at::Tensor m0 = state.empty() ? nothing_seen(rows, i) : state.parts[1];
  const auto [before, m, last] = maxima(in, i.detach(), f.detach(), m0);
  return {
      (f.to(at::kDouble) + (before - m)).to(wide),
      (i.to(at::kDouble) - m).to(wide),
      (-m).exp().to(wide),
      last.to(wide)};
}

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
      !qkv.g.defined() && !qkv.beta.defined(), "[exponential_gate] takes q, k, v, i and f alone"
  );
  HORNER_CHECK(
      state.empty() || state.parts.size() == 2, "[exponential_gate] a state has 2 parts, S and m"
  );
  Inputs in = qkv;
  Options own = options;
  own.log_norm = false;
  own.norm = "sum";
  in.g = f;
  in.beta = i;
  const bool any = options.form == "auto" || options.form == "chunked kernel";
  if (any && chosen_kernel(gated_op(), in, state, own)) {
    in.q = qkv.q.to(qkv.v.scalar_type());
    in.k = qkv.k.to(qkv.v.scalar_type());
    return run(gated_op(), in, state, own);
  }
  const at::ScalarType wide = state_dtype(qkv);
  const Stabilised s = stabilise(qkv, i, f, state);
  own.norm = "none";
  in.g = s.g;
  in.beta = at::Tensor();
  in.k = qkv.k.to(wide) * s.gain.exp().unsqueeze(-1);       // k'_t = k_t e^{i_t - m_t}
  in.v = at::constant_pad_nd(qkv.v.to(wide), {0, 1}, 1.0);  // [v_t, 1]
  in.q = qkv.q.to(wide);
  Result result =
      run(find_op("linear"), in, state.empty() ? State{} : State{{state.parts[0]}}, own);

  const int64_t V = qkv.v.size(3), r = qkv.q.size(2) / qkv.v.size(2);
  const at::Tensor floor = s.floor.repeat_interleave(r, 2).unsqueeze(-1);  // e^{-m_t}  (B,T,H,1)
  const at::Tensor den = at::maximum(result.o.narrow(-1, V, 1).abs(), floor);
  result.o = (result.o.narrow(-1, 0, V) / den).to(qkv.v.scalar_type());
  if (options.final_state) result.state.parts.push_back(s.last);
  return result;
}

}  // namespace horner
