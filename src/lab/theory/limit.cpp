#include "lab/theory/limit.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <numbers>

#include "core/check.h"
#include "core/random.h"

namespace horner::theory {
namespace {

double number(const at::Tensor& t) { return t.item<double>(); }
double tr(const at::Tensor& t) { return number(at::trace(t)); }

}  // namespace

at::Tensor Layer::a() const { return at::matmul(z, U); }
at::Tensor Layer::output() const { return at::matmul(m + at::matmul(a(), Gamma), W); }
double Layer::e() const { return std::exp(number(at::dot(at::matmul(a(), Gamma), a()))); }

Leading leading(const Layer& layer) {
  const auto& [m, Gamma, U, W, z] = layer;
  const at::Tensor a = layer.a(), b = at::matmul(a, Gamma), P = at::matmul(W, W.t());
  const double e = layer.e();
  const double total = tr(Gamma) + number(at::dot(b, b));
  const double spread =
      tr(at::matmul(P, Gamma)) + number(at::dot(at::matmul(b, P), b));  // tr(P Gamma) + b P b^T
  const double rest = tr(at::matmul(at::matmul(Gamma, P), Gamma)) +
                      2 * number(at::dot(at::matmul(at::matmul(b, Gamma), P), b));
  return {
      .output = e * spread,
      .bias = e * number(at::matmul(b, W).norm()),
      .W_gradient = double(W.size(1)) * e * total,
      .U_gradient = number(at::dot(z, z)) * e * (total * spread + rest),
      .linear = std::log(e) * tr(at::matmul(P, Gamma)) + number(at::dot(at::matmul(b, P), b))};
}

double leading_random_query(const Layer& layer) {
  const auto& [m, Gamma, U, W, z] = layer;
  const at::Tensor M = at::matmul(at::matmul(U, Gamma), U.t());
  const at::Tensor rest = at::eye(M.size(0), M.options()) - 2 * M;  // I - 2M
  if (number(at::linalg_eigvalsh(rest).min()) <= 0) return INFINITY;
  const at::Tensor UG = at::matmul(U, Gamma);
  const at::Tensor inner =
      Gamma +
      at::matmul(UG.t(), at::linalg_solve(rest, UG));  // Gamma + Gamma U^T (I - 2M)^-1 U Gamma
  return tr(at::matmul(W.t(), at::matmul(inner, W))) / std::sqrt(number(at::linalg_det(rest)));
}

Tilted tilted(const at::Tensor& X, const at::Tensor& a) {
  const at::Tensor p = at::softmax(at::matmul(X, a), -1).unsqueeze(1);  // (R,1,L)
  const at::Tensor mean = at::bmm(p, X);                                // (R,1,d)
  const at::Tensor Y = X - mean;                                        // (R,L,d)
  return {mean.squeeze(1), at::bmm(Y.transpose(1, 2) * p, Y)};
}

at::Tensor tilted_mean(const at::Tensor& X, const at::Tensor& a) {
  return at::bmm(at::softmax(at::bmm(a, X.transpose(1, 2)), -1), X);
}

at::Tensor normals(uint64_t seed, uint32_t stream, int64_t first, int64_t R, int64_t n) {
  const int64_t pairs = (n + 1) / 2;
  const int64_t blocks = (pairs + 1) / 2;  // four words each, of 32 bits: two pairs
  at::Tensor u = at::empty({R, blocks, 4}, at::kDouble);
  at::parallel_for(0, R, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      double* to = u.data_ptr<double>() + r * blocks * 4;
      const uint64_t index = uint64_t(stream) << 40 | uint64_t(first + r);
      for (int64_t q = 0; q < blocks; ++q) {
        const Words counter = {
            uint32_t(q), uint32_t(index), uint32_t(index >> 32), uint32_t(Stream::noise)};
        for (const uint32_t word : philox(counter, seed)) *to++ = (word + 0.5) * 0x1p-32;
      }
    }
  });
  const at::Tensor half = u.view({R, blocks * 2, 2}).narrow(1, 0, pairs);
  const at::Tensor radius = (at::log(half.select(2, 0)) * -2).sqrt_();  // Box-Muller
  const at::Tensor angle = half.select(2, 1) * (2 * std::numbers::pi);
  return at::cat({at::cos(angle).mul_(radius), at::sin(angle).mul_(radius)}, 1).narrow(1, 0, n);
}

at::Tensor covariance(const std::string& kind, int64_t d, uint64_t seed) {
  if (kind == "identity") return at::eye(d, at::kDouble);
  const at::Tensor i = at::arange(d, at::kDouble);
  if (kind == "toeplitz") return at::pow(0.5, (i.unsqueeze(0) - i.unsqueeze(1)).abs());
  HORNER_CHECK(
      kind == "rotated", "covariance must be identity, toeplitz or rotated, got '{}'", kind
  );
  const at::Tensor eigenvalues = at::pow(8.0, i / std::max<int64_t>(d - 1, 1));
  const at::Tensor axes = std::get<0>(at::linalg_qr(normals(seed, 0, 0, d, d)));
  const at::Tensor Gamma = at::matmul(axes * eigenvalues, axes.t());
  return Gamma * (double(d) / tr(Gamma));
}

at::Tensor root(const at::Tensor& Gamma) { return at::linalg_cholesky(Gamma).t().contiguous(); }

}  // namespace horner::theory
