// Softmax's weights around centres of the keys: each key is replaced by its nearest centre and a Taylor series around it.
//
//   c(k)    = the centre mu_c nearest to k, of C centres for each key head
//   e^{q.k} ~ e^{q.mu_c} p(q.(k - mu_c)),  p(x) = 1 + x + .. + x^N/N!              q.k stands for q.k/sqrt(K)
//   phi(k)  = 1_{c(k)} (x) m(k - mu_c(k))                 C F numbers, F = C(K+N,N) monomials; F = 1 for N = 0
//   phi(q)  = (e^{q.mu_c - m})_c (x) W m(q)               m = max of q.mu_c over the centres that have got a token
//   weight  = e^m phi(q).phi(k)
//
// So `linear` carries it, with V + 1 numbers for each centre at N = 0. A centre without a token has no weight, and its score is
// masked before e^x: no exponent is positive, one weight is 1, and their sum cannot vanish. N must be even, for p > 0.
//
// The centres are trained. At N = 2 the gradient of the weights is exact almost everywhere. At N = 0 a key acts through its
// centre's number alone and would get no gradient. It gets the one of a soft assignment, softmax_c(-|k - mu_c|^2 / (2 sqrt K))
// (straight through). The soft assignment itself is no choice: a trained model's weights need the nearest centre.
#pragma once

#include <torch/nn/module.h>

#include "nn/pass.h"

namespace horner {

class CentreFeatures {
 public:
  CentreFeatures() = default;
  // `deviation`: of the centres at the start.
  CentreFeatures(
      torch::nn::Module&, int64_t G, int64_t K, int64_t count, int64_t order, double deviation
  );
  bool defined() const { return mu_.defined(); }
  bool straight_through() const { return order_ == 0; }

  struct Mapped {
    at::Tensor q, k;        // (B,T,H,C F), (B,T,G,C F)
    at::Tensor log_factor;  // (B,T,H): m, and -1e30 while no centre has a token
  };
  // q (B,T,H,K), k (B,T,G,K). written (B|1,T): whether the key of this place is written; undefined: all.
  Mapped operator()(
      const at::Tensor& q, const at::Tensor& k, const at::Tensor& written, bool causal, Pass& pass
  ) const;
  void set(const at::Tensor& centres) const;  // (G,C,K)
  int64_t count() const { return mu_.size(1); }

 private:
  at::Tensor nearest(const at::Tensor& k) const;  // (B,T,G,C): 1 at the nearest centre, else 0
  at::Tensor soft(const at::Tensor& k) const;     // (B,T,G,C)

  int64_t order_ = 0;
  at::Tensor mu_;  // (G,C,K)
};

}  // namespace horner
