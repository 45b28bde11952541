#include "ops/weighted_sum.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace horner {
namespace {

constexpr double kSegmentElements = 1 << 24;  // features that the chunked form builds at a time

struct Sum {
  at::Tensor y;  // (B,G,r,T,V)
  at::Tensor S;  // (B,G,1,F,V) after the last token; undefined where it is not wanted
};

at::Tensor token(const at::Tensor& x, int64_t t) { return x.narrow(-2, t, 1); }  // (...,1,X)

at::Tensor write(const at::Tensor& k, const at::Tensor& v) {  // sum_t k_t^T v_t  (...,K,V)
  return product(k.transpose(-1, -2), v);
}

// diag(exp g) S for g (...,1|F) and S (...,F,V); S if g is undefined.
at::Tensor decayed(const at::Tensor& g, const at::Tensor& S) {
  return g.defined() ? g.exp().unsqueeze(-1) * S : S;
}

// The sequence read backwards. Its token r has the decay of token T-r.
Operands reversed(const Operands& x) {
  Operands y = x;
  y.q = x.q.flip(-2);
  y.k = x.k.flip(-2);
  y.v = x.v.flip(-2);
  if (x.g.defined()) {
    const int64_t T = x.g.size(-2);
    y.g = at::constant_pad_nd(x.g.flip(-2).narrow(-2, 0, T - 1), {0, 0, 1, 0});
  }
  return y;
}

// The weight of each token with itself: w_tt v_t.
at::Tensor own(const Weights& w, const Operands& x) {
  return w.product(x.q.unsqueeze(-2), x.k.unsqueeze(-2)).squeeze(-1) * x.v;
}

template <class Causal>
Sum both_directions(const Weights& w, const Operands& x, Causal&& causal) {
  const Sum past = causal(x);
  const at::Tensor future = causal(reversed(x)).y.flip(-2);
  return {past.y + future - own(w, x), past.S};
}

// The definition. S undefined, here and below: nothing seen yet.
Sum recur(const Weights& w, const Operands& x, at::Tensor S) {
  const int64_t T = x.v.size(-2);
  std::vector<at::Tensor> y;
  for (int64_t t = 0; t < T; ++t) {
    const at::Tensor k = w.psi(token(x.k, t)).transpose(-1, -2), v = token(x.v, t);
    const at::Tensor g = x.g.defined() ? w.decay(token(x.g, t)).squeeze(-2) : x.g;
    S = S.defined() ? at::addcmul(decayed(g, S), k, v)
                    : k * v;                        // S_t = diag(exp g_t) S_{t-1} + psi(k_t)^T v_t
    y.push_back(product(w.phi(token(x.q, t)), S));  // y_t = phi(q_t) S_t
  }
  return {at::cat(y, -2), S};
}

Sum pair_up(const Weights& w, const Operands& x, const at::Tensor& S0, bool want_state) {
  Sum sum{product(w.pairs(x.q, x.k, x.g), x.v), {}};  // sum_{s<=t} w_ts v_s
  const at::Tensor g = x.g.defined() ? w.decay(x.g) : x.g;
  if (S0.defined()) {
    const at::Tensor phi = w.phi(x.q);
    sum.y = sum.y + product(g.defined() ? phi * since_start(g).exp() : phi, S0);
  }
  if (want_state) {
    const at::Tensor psi = w.psi(x.k);
    sum.S = write(g.defined() ? psi * until_end(g).exp() : psi, x.v);
    if (S0.defined()) sum.S = sum.S + decayed(g.defined() ? g.sum(-2) : g, S0);
  }
  return sum;
}

Sum chunk_up(const Weights& w, const Operands& x, const at::Tensor& S0, int64_t C) {
  const at::Tensor q = to_chunks(x.q, C), k = to_chunks(x.k, C),
                   v = to_chunks(x.v, C);  // (B,G,r,n,C,.)
  const at::Tensor g = x.g.defined() ? to_chunks(x.g, C) : x.g;
  const at::Tensor inside = product(w.pairs(q, k, g), v);  // sum_{s<=t in chunk} w_ts v_s

  at::Tensor phi = w.phi(q), psi = w.psi(k), total;  // (B,G,.,n,C,F)
  if (g.defined()) {
    const at::Tensor G = w.decay(g);
    phi = phi * since_start(G).exp();  // phi(q_t) e^{G_t}
    psi = psi * until_end(G).exp();    // e^{G_C - G_s} psi(k_s)
    total = G.sum(-2).exp();           // e^{G_C}  (B,G,1,n,1|F)
  }
  const std::vector<at::Tensor> writes = write(psi, v).unbind(3);  // n of (B,G,1,F,V)
  at::Tensor S = S0.defined() ? S0 : at::zeros_like(writes[0]);
  std::vector<at::Tensor> entering;
  for (size_t i = 0; i < writes.size(); ++i) {
    entering.push_back(S);
    S = total.defined() ? at::addcmul(writes[i], total.select(3, int64_t(i)).unsqueeze(-1), S)
                        : writes[i] + S;
  }
  const at::Tensor before = product(phi, at::stack(entering, 3));  // phi(q_t) e^{G_t} S_0
  return {from_chunks(inside + before, x.v.size(-2)), S};
}

// Runs in segments, each from the state of the one before, to limit how many features exist at one time.
Sum chunk_up_segments(const Weights& w, const Operands& x, const at::Tensor& S0, int64_t C) {
  const int64_t T = x.v.size(-2);
  const double rows = double(x.q.numel() / x.q.size(-1)) / double(T);
  const int64_t chunks =
      std::max<int64_t>(1, int64_t(kSegmentElements / (rows * w.features * double(C))));
  const int64_t length = std::min(T, chunks * C);
  std::vector<at::Tensor> y;
  Sum sum{{}, S0};
  for (int64_t t = 0; t < T; t += length) {
    const auto segment = [&](const at::Tensor& z) {
      return z.defined() ? z.narrow(-2, t, std::min(length, T - t)) : z;
    };
    sum = chunk_up(w, {segment(x.q), segment(x.k), segment(x.v), segment(x.g), {}}, sum.S, C);
    y.push_back(sum.y);
  }
  return {y.size() == 1 ? y[0] : at::cat(y, -2), sum.S};
}

struct Problem {
  Operands x;
  at::Tensor S0;  // (B,G,1,F,V)
};

Problem problem(const Weights& w, const Inputs& in, const State& state, const Options& options) {
  Problem p{operands(in), {}};
  if (w.scale != 1.0) p.x.q = p.x.q * w.scale;
  if (options.norm == "sum")
    p.x.v = at::constant_pad_nd(p.x.v, {0, 1}, 1.0);  // (...,V) -> (...,V+1)
  if (!state.empty()) p.S0 = state.parts[0].to(state_dtype(in)).unsqueeze(2);
  return p;
}

Result finish(const Sum& sum, const Inputs& in, const Options& options) {
  Result result;
  at::Tensor y = sum.y;
  if (options.norm == "sum") {
    const int64_t V = y.size(-1) - 1;
    at::Tensor den = y.narrow(-1, V, 1);
    if (!options.odd) den = den.clamp_min(options.eps);  // an odd series has a sum of either sign
    y = y.narrow(-1, 0, V) / den;
    if (options.log_norm) result.norm = to_norm(den.log());
  }
  result.o = to_output(y, in);
  if (options.final_state) result.state.parts = {sum.S.squeeze(2)};
  return result;
}

}  // namespace

Result recurrent_sum(const Weights& w, const Inputs& in, const State& state, const Options& o) {
  const Problem p = problem(w, in, state, o);
  const auto causal = [&](const Operands& x) { return recur(w, x, p.S0); };
  return finish(o.causal ? causal(p.x) : both_directions(w, p.x, causal), in, o);
}

Result parallel_sum(const Weights& w, const Inputs& in, const State& state, const Options& o) {
  const Problem p = problem(w, in, state, o);
  const auto causal = [&](const Operands& x) { return pair_up(w, x, p.S0, o.final_state); };
  if (o.causal) return finish(causal(p.x), in, o);
  if (p.x.g.defined()) return finish(both_directions(w, p.x, causal), in, o);
  Sum sum{product(w.product(p.x.q, p.x.k), p.x.v), {}};
  if (o.final_state) sum.S = write(w.psi(p.x.k), p.x.v);
  return finish(sum, in, o);
}

Result chunked_sum(const Weights& w, const Inputs& in, const State& state, const Options& o) {
  const Problem p = problem(w, in, state, o);
  const auto causal = [&](const Operands& x) { return chunk_up_segments(w, x, p.S0, o.chunk); };
  if (o.causal) return finish(causal(p.x), in, o);
  if (p.x.g.defined()) return finish(both_directions(w, p.x, causal), in, o);
  const at::Tensor S =
      write(w.psi(p.x.k), p.x.v);  // without decay every token reads the same state
  return finish({product(w.phi(p.x.q), S), S}, in, o);
}

at::Tensor diagonal_decay(const Inputs& in) {
  if (in.g.defined()) return in.g.dim() == 3 ? in.g.unsqueeze(-1) : in.g;
  return at::zeros({in.v.size(0), in.v.size(1), in.v.size(2), 1}, in.v.options());
}

at::Tensor weight_sums(const Weights& w, const Inputs& in, const Options& options) {
  Inputs ones = in;
  ones.v = at::ones_like(in.v.narrow(3, 0, 1));
  Options plain = options;
  plain.norm = "none";
  plain.log_norm = plain.final_state = false;
  return parallel_sum(w, ones, {}, plain).o.squeeze(-1).clamp_min(options.eps);
}

State zero_sum(const c10::SymInt& F, const Inputs& in, const Options& options) {
  const c10::SymInt V = in.v.sym_size(3) + (options.norm == "none" ? 0 : 1);
  const at::TensorOptions like = in.v.options().dtype(state_dtype(in));
  return {{at::zeros_symint({in.k.sym_size(0), in.k.sym_size(2), F, V}, like)}};
}

}  // namespace horner
