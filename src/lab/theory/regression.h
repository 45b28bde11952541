// In-context linear regression by one layer (arXiv:2512.11784, section 5).
//
//   x_i ~ N(0, Sigma), w ~ N(0, I), y_i = x_i w^T; tokens (x_i, y_i), query (x, 0), loss (prediction - x w^T)^2 / 2
//   U = diag(A, 0), W = diag(0, .., 0, b):   prediction = b sum_i softmax_i(x A x_i^T) y_i
//
// The mean over w is exact: with m_a the softmax mean of the x_i at a = x A,
//
//   R_L(A,b)   = E |b m_a - x|^2 / 2
//   R_inf(A,b) = tr( (b A Sigma - I)^T Sigma (b A Sigma - I) ) / 2          m_a = x A Sigma
//
// Linear attention, m_a = x A Sigma_hat, at any L, with C = A^T Sigma A:
//
//   R_lin = [ b^2 ( (1 + 1/L) tr(Sigma C Sigma) + tr(C Sigma) tr(Sigma) / L ) - 2 b tr(Sigma A Sigma) + tr Sigma ] / 2
//
// Every A = t Sigma^{-1}, b = 1/t has R_inf = 0, and for 2 t^2 < 1
//
//   L R_L -> tr(Sigma) / (2 t^2) (1 - 2t^2)^{-d/2} ( 1 + t^2 / (1 - 2t^2) )
//
// The flow (A, b)' = -grad R_inf keeps |A|_F^2 - b^2. From A(0) = alpha Th Th^T with |Th Th^T|_F = 1,
// b(0) = alpha it ends in A* = c Sigma^{-1}, b* = 1/c, c = tr(Sigma^{-2})^{-1/4}.
#pragma once

#include <ATen/core/Tensor.h>

namespace horner::theory {

struct Parameters {
  at::Tensor A;  // (d,d), or (S,d,d) for S runs side by side
  at::Tensor b;  // (),    or (S)
};

at::Tensor linear_risk(
    const at::Tensor& Sigma, const Parameters&, double one_over_L
);  // () or (S); 1/L = 0: R_inf
Parameters linear_gradient(const at::Tensor& Sigma, const Parameters&, double one_over_L);

double calibrated_risk(const at::Tensor& Sigma, double t);  // lim L R_L; infinity where 2 t^2 >= 1
double limit_scale(const at::Tensor& Sigma);                // c

// Of prompts X (S,n,L,d) with queries x (S,n,Q,d): risk (S), and the gradient of its mean.
struct SoftmaxRisk {
  at::Tensor risk;
  Parameters gradient;
};
SoftmaxRisk softmax_risk(const at::Tensor& X, const at::Tensor& x, const Parameters&);
// The same for the limit m_a = x A Sigma. Its mean over x is known (linear_risk), so subtracting it from softmax_risk removes
// the noise of the queries.
SoftmaxRisk limit_risk(const at::Tensor& Sigma, const at::Tensor& x, const Parameters&);

Parameters moved(const Parameters&, const Parameters& along, double by);

// The linear flow up to `time`, by RK4 with steps of at most `step`.
Parameters flow(const at::Tensor& Sigma, Parameters, double time, double step);

}  // namespace horner::theory
