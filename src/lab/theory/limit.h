// Softmax over a long prompt of Gaussian tokens is linear attention (arXiv:2512.11784).
//
//   T_L = sum_i softmax_i(a x_i^T) x_i W          a = z U, prompt x_1 .. x_L ~ N(m, Gamma), query outside it
//   T   = (m + a Gamma) W                         its limit: affine in the query (Lemma 2.1)
//   m_a, Cov_a                                    mean and covariance of the tokens, weighted by softmax_i(a x_i^T)
//   derivatives of T_L                            m_a H_W along H_W,   z H_U Cov_a W along H_U
//
// Leading terms for a fixed query, with e = exp(a Gamma a^T), b = a Gamma, P = W W^T; valid once L >> e:
//
//   output       L E|T_L - T|^2                ->  e ( tr(P Gamma) + b P b^T )
//   bias         L E[T_L - T]                  ->  - e b W
//   W-gradient   L E|dT_L/dW - dT/dW|_F^2      ->  d_out e ( tr Gamma + |b|^2 )
//   U-gradient   L E|dT_L/dU - dT/dU|_F^2      ->  |z|^2 e [ (tr Gamma + |b|^2)(tr(P Gamma) + b P b^T)
//                                                             + tr(Gamma P Gamma) + 2 b Gamma P b^T ]
//   linear       L E|(1/L) sum_i (a x_i^T) x_i W - a Gamma W|^2  =  (a Gamma a^T) tr(P Gamma) + b P b^T     (m = 0, any L)
//
// For a query z ~ N(0, I), with M = U Gamma U^T and 2 lambda_max(M) < 1, infinite otherwise:
//
//   output       L E|T_L - T|^2  ->  det(I - 2M)^{-1/2} tr( W^T [Gamma + Gamma U^T (I - 2M)^{-1} U Gamma] W )
#pragma once

#include <ATen/core/Tensor.h>

namespace horner::theory {

struct Layer {
  at::Tensor m, Gamma, U, W, z;  // (d) (d,d) (d,d) (d,V) (d), fp64

  at::Tensor a() const;       // (d)
  at::Tensor output() const;  // (V), the limit T
  double e() const;
};

// L times the mean squared errors, at leading order.
struct Leading {
  double output, bias /* |e b W| */, W_gradient, U_gradient, linear;
};
Leading leading(const Layer&);

double leading_random_query(const Layer&);  // z is not read; infinity if it does not exist

// Mean and covariance of a prompt's tokens under the weights softmax_i(a x_i^T).
struct Tilted {
  at::Tensor mean, cov;  // (R,d) (R,d,d)
};
Tilted tilted(const at::Tensor& X, const at::Tensor& a);           // (R,L,d), (d)
at::Tensor tilted_mean(const at::Tensor& X, const at::Tensor& a);  // (R,L,d), (R,Q,d) -> (R,Q,d)

// Standard normals (R,n). Row r is row `first + r` of the stream. It depends only on seed, stream and that number, not on the
// device, the threads or the size of a batch.
at::Tensor normals(uint64_t seed, uint32_t stream, int64_t first, int64_t R, int64_t n);

// Covariances with trace d: "identity", "toeplitz" (0.5^|i-j|), "rotated" (eigenvalues spread by 8,
// random axes).
at::Tensor covariance(const std::string& kind, int64_t d, uint64_t seed);
at::Tensor root(const at::Tensor& Gamma);  // g root ~ N(0, Gamma) for a row g of standard normals

}  // namespace horner::theory
