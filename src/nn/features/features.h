// Feature maps phi of linear attention: q.k becomes phi(q).phi(k). Numbers in brackets: arXiv.
//
//   identity   x                                   elu1    x+1 for x > 0, else e^x    (2006.16236)
//   relu       relu(x)                             relu2   relu(x)^2
//   cosine     x / |x|; the mixer divides v_s by s^sigmoid(c), c per head learned     (2409.18747)
//   exp        softmax over the K features
//   favor      M^{-1/2} e^{x'.w_i - |x'|^2/2} + 1e-4, x' = x/K^{1/4}                  (2009.14794)
//              w_i orthogonal in blocks of K, |w_i| ~ chi_K; a query's largest exponent is subtracted
//   fourier    M^{-1/2} [cos(x'.w_i), sin(x'.w_i)], x' = x/|x|                        (2103.02143)
//   hedgehog   [softmax(xA), softmax(-xA)], A = I at first, per head, for q and for k  (2402.04347)
//
// LUNA's learned map is in features/luna.h. Our choices where the papers are open: 1e-4 keeps a sum of favor's features
// above 0 (a sum of relu's has the mixer's floor); hedgehog is learned together with the rest, not before it.
#pragma once

#include <torch/nn/module.h>

namespace horner {

const std::vector<std::string>& feature_names();

class Features {
 public:
  Features() = default;
  // For H query heads and G key heads of K; M random features where the map has them.
  Features(torch::nn::Module&, const std::string& kind, int64_t H, int64_t G, int64_t K, int64_t M);

  at::Tensor queries(const at::Tensor& q) const {
    return apply(q, false);
  }  // (B,T,H,K) -> (B,T,H,F)
  at::Tensor keys(const at::Tensor& k) const { return apply(k, true); }
  bool positive() const;  // whether every weight phi(q).phi(k) is >= 0

 private:
  at::Tensor apply(const at::Tensor& x, bool key) const;

  std::string kind_ = "identity";
  at::Tensor w_;              // (M,K), fixed
  at::Tensor for_q_, for_k_;  // (H,K,K), (G,K,K)
};

at::Tensor orthogonal_rows(int64_t M, int64_t K);  // favor's w

}  // namespace horner
