#include "ops/attention/plain.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <limits>

#include "ops/attention/cache.h"
#include "ops/chunks.h"

namespace horner {
namespace {

struct Rows {
  at::Tensor o, norm;  // (B,G,r,C,V), (B,G,r,C,1)
};

// In fp32, or fp64 where the inputs are.
struct Problem {
  at::Tensor q;  // (B,G,r,T,K), scaled
  Visible keys;
};

Problem problem(const Inputs& in, const State& state, const Options& o) {
  const int64_t G = in.k.size(2), r = in.q.size(2) / G;
  const at::Tensor q = in.q.to(state_dtype(in)).unflatten(2, {G, r}).permute({0, 2, 3, 1, 4});
  Problem p{q.contiguous() * attention_scale(in, o), visible_keys(in, state, o)};
  p.keys.k = p.keys.k.to(p.q.scalar_type());
  p.keys.v = p.keys.v.to(p.q.scalar_type());
  return p;
}

Rows attend(const Problem& p, int64_t t, int64_t C, Visible::Span span, const Options& o) {
  const at::Tensor hidden = p.keys.mask(t, C, span, o).logical_not();
  const at::Tensor k = p.keys.cut(p.keys.k, -2, span), v = p.keys.cut(p.keys.v, -2, span);
  at::Tensor x = product(p.q.narrow(-2, t, C), k.transpose(-1, -2));
  if (o.clamp) x = x.clamp_max(*o.clamp);
  x = x.masked_fill(hidden, -std::numeric_limits<double>::infinity());  // x_ts
  const at::Tensor norm = x.logsumexp(-1, true);                        // log sum_s e^{x_ts}
  return {product((x - norm).exp(), v), norm};  // sum_s e^{x_ts - norm_t} v_s
}

// C queries at a time; whole: against all keys, else against those that they can see.
Result run_blocks(const Inputs& in, const State& state, const Options& o, int64_t C, bool whole) {
  const Problem p = problem(in, state, o);
  const int64_t T = in.q.size(1);
  std::vector<at::Tensor> out, norm;
  for (int64_t t = 0; t < T; t += C) {
    const int64_t n = std::min(C, T - t);
    const Visible::Span all{0, p.keys.S + T};
    const Rows rows = attend(p, t, n, whole ? all : p.keys.span(t, n, o), o);
    out.push_back(rows.o);
    norm.push_back(rows.norm);
  }
  Result result;
  result.o = to_output(at::cat(out, -2), in);
  if (o.log_norm) result.norm = to_norm(at::cat(norm, -2));
  if (o.final_state) result.state = attention_next_state(in, state, o);
  return result;
}

// A token after fixed caches: o as after any others, and the token in its slot.
Result after_fixed(const Inputs& in, const State& state, const Options& o) {
  State ordered = state;
  for (const size_t part : {0, 1})
    ordered.parts[part] = in_order(state.parts[part], state.parts[2]);
  Options only_o = o;
  only_o.final_state = false;
  Result result = run_blocks(in, ordered, only_o, 1, false);
  if (o.final_state) result.state = attention_next_state(in, state, o);
  return result;
}

}  // namespace

double attention_scale(const Inputs& in, const Options& o) {
  return o.scale.value_or(1.0 / std::sqrt(double(in.q.size(3))));
}

Visible visible_keys(const Inputs& in, const State& state, const Options& o) {
  const int64_t T = in.q.size(1);
  const auto heads = [](const at::Tensor& x) { return x.transpose(1, 2).unsqueeze(2); };
  Visible y{heads(in.k), heads(in.v), {}, {}, {}, 0, 0, T};
  const at::Tensor now = at::arange(T, in.q.options().dtype(at::kLong)).view({1, 1, T});
  y.from = now;
  y.to = now;
  const auto before = [&](const at::Tensor& k, const at::Tensor& v, const at::Tensor& positions) {
    y.k = at::cat({k.to(y.k.scalar_type()).unsqueeze(2), y.k}, -2);
    y.v = at::cat({v.to(y.v.scalar_type()).unsqueeze(2), y.v}, -2);
    const int64_t B = y.to.size(0), G = y.to.size(1);
    y.to = at::cat({positions.expand({B, G, -1}), y.to}, -1);
  };
  if (!state.empty()) {  // slot j of S holds position seen - S + j
    const at::Tensor seen = state.parts[2].unsqueeze(-1);
    y.S = state.parts[0].size(2);
    y.from = seen + now;
    y.to = y.from;
    before(state.parts[0], state.parts[1], seen + at::arange(-y.S, 0, now.options()));
  }
  if (o.sinks > 0) {
    const Sinks sinks = attention_sinks(in, state, o);
    y.N = state.empty() ? std::min(o.sinks, T) : o.sinks;
    const auto there = [&](const at::Tensor& x) { return x.narrow(2, 0, y.N); };
    before(there(sinks.k), there(sinks.v), at::arange(y.N, now.options()).view({1, 1, -1}));
  }
  if (in.lengths.defined()) y.end = in.lengths.view({-1, 1, 1, 1, 1});
  y.from = y.from.unsqueeze(2).unsqueeze(-1);
  y.to = y.to.unsqueeze(2).unsqueeze(2);
  return y;
}

Visible::Span Visible::span(int64_t t, int64_t C, const Options& o) const {
  Span seen{0, o.causal ? S + t + C : S + T};
  if (o.window > 0) {
    seen.first = std::max<int64_t>(0, S + t - o.window + 1);
    seen.end = std::min(seen.end, S + t + C + o.window - 1);
  }
  return seen;
}

at::Tensor Visible::cut(const at::Tensor& x, int64_t dim, Span s) const {
  const at::Tensor near = x.narrow(dim, N + s.first, s.end - s.first);
  return N == 0 ? near : at::cat({x.narrow(dim, 0, N), near}, dim);
}

at::Tensor Visible::mask(int64_t t, int64_t C, Span s, const Options& o) const {
  const at::Tensor query = from.narrow(-2, t, C);
  const auto seen = [&](const at::Tensor& key, bool sink) {
    at::Tensor yes = key >= 0;
    if (end.defined())
      yes = yes.logical_and((key < end).logical_or(query >= end));  // padding sees all
    if (o.window > 0) {
      const at::Tensor ago = o.causal ? query - key : (query - key).abs();
      yes = yes.logical_and(sink ? ago >= o.window : ago < o.window);  // a sink in the window: once
    }
    return o.causal ? yes.logical_and(key <= query) : yes;
  };
  const at::Tensor near = seen(to.narrow(-1, N + s.first, s.end - s.first), false);
  return N == 0 ? near : at::cat({seen(to.narrow(-1, 0, N), true), near}, -1);
}

Result attention_recurrent(const Inputs& in, const State& state, const Options& o) {
  if (has_fixed_caches(state)) return after_fixed(in, state, o);
  return run_blocks(in, state, o, 1, false);
}

Result attention_parallel(const Inputs& in, const State& state, const Options& o) {
  return run_blocks(in, state, o, in.q.size(1), true);
}

Result attention_chunked(const Inputs& in, const State& state, const Options& o) {
  return run_blocks(in, state, o, o.chunk, false);
}

}  // namespace horner
