#include "lab/theory/regression.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

namespace horner::theory {
namespace {

at::Tensor tr(const at::Tensor& M) {  // (...,d,d) -> (...)
  return M.diagonal(0, -2, -1).sum(-1);
}

at::Tensor wide(const at::Tensor& b, int64_t dims) {  // (S) -> (S,1,..,1)
  std::vector<int64_t> shape = b.sizes().vec();
  shape.resize(shape.size() + size_t(dims), 1);
  return b.view(shape);
}

// Risk and gradient from m (S,n,Q,d) = the mean at a = x A and v -> v Cov.
template <class TimesCov>
SoftmaxRisk squared_error(
    const at::Tensor& x, const at::Tensor& m, const at::Tensor& b, const TimesCov& times_cov
) {
  const at::Tensor r = wide(b, 3) * m - x;         // b m_a - x
  const at::Tensor v = times_cov(wide(b, 3) * r);  // b r Cov_a
  const double count = double(x.size(1) * x.size(2));
  const at::Tensor rows = x.flatten(1, 2);  // (S,nQ,d)
  return {
      r.square().sum({1, 2, 3}) / (2 * count),
      {at::bmm(rows.transpose(1, 2), v.flatten(1, 2)) / count,  // E x^T (b r Cov_a)
       (r * m).sum({1, 2, 3}) / count}};                        // E r m_a^T
}

}  // namespace

at::Tensor linear_risk(const at::Tensor& Sigma, const Parameters& p, double one_over_L) {
  const at::Tensor C = at::matmul(at::matmul(p.A.transpose(-2, -1), Sigma), p.A);
  const at::Tensor CS = at::matmul(C, Sigma), total = tr(Sigma);
  const at::Tensor square =
      (1 + one_over_L) * tr(at::matmul(Sigma, CS)) + one_over_L * tr(CS) * total;
  const at::Tensor cross = tr(at::matmul(at::matmul(Sigma, p.A), Sigma));
  return (p.b * p.b * square - 2 * p.b * cross + total) / 2;
}

Parameters linear_gradient(const at::Tensor& Sigma, const Parameters& p, double one_over_L) {
  const at::Tensor SAS = at::matmul(at::matmul(Sigma, p.A), Sigma);
  const at::Tensor S2 = at::matmul(Sigma, Sigma);
  const at::Tensor inner = (1 + one_over_L) * at::matmul(SAS, Sigma) + one_over_L * tr(Sigma) * SAS;
  return {
      wide(p.b * p.b, 2) * inner - wide(p.b, 2) * S2, p.b * (p.A * inner).sum({-2, -1}) - tr(SAS)};
}

double calibrated_risk(const at::Tensor& Sigma, double t) {
  const double rest = 1 - 2 * t * t, d = double(Sigma.size(0));
  if (rest <= 0) return INFINITY;
  return tr(Sigma).item<double>() / (2 * t * t) * std::pow(rest, -d / 2) * (1 + t * t / rest);
}

double limit_scale(const at::Tensor& Sigma) {
  const at::Tensor inverse = at::linalg_inv(Sigma);
  return std::pow((inverse * inverse).sum().item<double>(), -0.25);
}

SoftmaxRisk softmax_risk(const at::Tensor& X, const at::Tensor& x, const Parameters& p) {
  const at::Tensor keys = X.flatten(0, 1);                                       // (Sn,L,d)
  const at::Tensor a = at::matmul(x, p.A.unsqueeze(1)).flatten(0, 1);            // (Sn,Q,d)
  const at::Tensor weights = at::softmax(at::bmm(a, keys.transpose(1, 2)), -1);  // (Sn,Q,L)
  const at::Tensor m = at::bmm(weights, keys).view(x.sizes());
  return squared_error(x, m, p.b, [&](const at::Tensor& v) {
    const at::Tensor score = at::bmm(v.flatten(0, 1), keys.transpose(1, 2));  // v x_i^T
    const at::Tensor second = at::bmm(score.mul_(weights), keys).view(x.sizes());
    return second - (v * m).sum(3, true) * m;  // v Cov_a = sum_i p_i (v x_i^T) x_i - (v m^T) m
  });
}

SoftmaxRisk limit_risk(const at::Tensor& Sigma, const at::Tensor& x, const Parameters& p) {
  const at::Tensor m = at::matmul(at::matmul(x, p.A.unsqueeze(1)), Sigma);
  return squared_error(x, m, p.b, [&](const at::Tensor& v) { return at::matmul(v, Sigma); });
}

Parameters moved(const Parameters& p, const Parameters& along, double by) {
  return {p.A + along.A * by, p.b + along.b * by};
}

Parameters flow(const at::Tensor& Sigma, Parameters p, double time, double step) {
  const int64_t steps = std::max<int64_t>(1, int64_t(std::ceil(time / step - 1e-9)));
  const double h = time / double(steps);
  for (int64_t i = 0; i < steps; ++i) {
    const Parameters k1 = linear_gradient(Sigma, p, 0);
    const Parameters k2 = linear_gradient(Sigma, moved(p, k1, -h / 2), 0);
    const Parameters k3 = linear_gradient(Sigma, moved(p, k2, -h / 2), 0);
    const Parameters k4 = linear_gradient(Sigma, moved(p, k3, -h), 0);
    p = moved(moved(p, k1, -h / 6), k2, -h / 3);
    p = moved(moved(p, k3, -h / 3), k4, -h / 6);
  }
  return p;
}

}  // namespace horner::theory
