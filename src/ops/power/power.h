// Softmax's Taylor series as a recurrence (arXiv:2507.23632): Horner's rule over time and over orders.
//
//   p(x) = c_0 + c_1 x + .. + c_N x^N        c_n = 1/n! gives softmax as N grows
//   y_t  = sum_{s<=t} e^{G_t-G_s} p(x_ts) v_s,  x_ts = scale q_t.k_s           o (B,T,H,V)
//   S_t  = a_t S_{t-1} + m(k_t)^T v_t,  y_t = (W m(scale q_t)) S_t             S (B,G,F,V)
//   m(x) = every monomial of degree 0..N once, F = C(K+N,N);  order 0 is the running sum of v
//   W    = c_n n!/(m_1! .. m_K!), so that (W m(q)).m(k) = p(q.k)
//   norm = sum:  o_t = y_t / den_t, den the same sum with v = 1; S gains it as its last column
//   decay = inside:  x_ts = scale sum_c q_c k_c e^{G_tc-G_sc}; a monomial decays by the product of its factors
//
//   form       computes                                  time                 extra memory
//   recurrent  S_t above, token by token                 T F V                F V
//   parallel   p by Horner's rule on all pairs           T^2 (K + V + N)      T^2
//   chunked    parallel inside a chunk, S between        T C (K+V+N) + T F V  C^2 + F (C + V)
//
//   on a GPU         takes, in the order in which auto asks
//   step kernel      one token with its state, N <= 2
//   chunked kernel   bf16, N <= 2, K <= 32
//   wide kernel      bf16, N <= 2, 32 < K <= 128, no decay; suits a call with a state or a large T
//   parallel kernel  bf16, K, V <= 128 (with a decay 64), no state
//   direct kernel    the oracle: all pairs, no tensor cores
//
// An odd order has a real root (order 1 at x = -1), so its sum can vanish: norm = sum then needs `odd`.
#pragma once

#include "ops/op.h"

namespace horner {

Op power_op();

inline constexpr int64_t kMostOrder = 64;  // 1/64! is 1e-89

// A form with a state sums monomials whose sizes add up to p(r), r = scale |q||k|, and cancel to p(scale q.k). In fp32 the
// weights keep about 24 - log2 p(r) bits. This is the r at which p(r), with |c_n|, reaches `most`.
double score_where(const std::vector<double>& c, double most);
inline constexpr double kNoDigit = 1 << 24;         // such calls are refused on a CPU
inline constexpr double kTrusted = kNoDigit / 1e3;  // three digits are left
double trusted_score(const Options& options);       // score_where of the series and kTrusted

double feature_count(int64_t K, int64_t order);  // C(K+N,N), a double: it can exceed an integer
at::Tensor monomials(const at::Tensor& x, int64_t order);  // (...,K) -> (...,F)
at::Tensor monomial_sums(
    const at::Tensor& g, int64_t order
);  // the same with sums instead of products: the log-decay of each monomial
std::vector<double> monomial_weights(int64_t K, const std::vector<double>& c);  // W
at::Tensor polynomial(const at::Tensor& x, const std::vector<double>& c);       // p(x)
std::vector<double> series(const Options&);                                     // c_0 .. c_N

}  // namespace horner
