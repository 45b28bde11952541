// What holds to rounding, or within a few standard errors of one long prompt.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "lab/theory/limit.h"
#include "lab/theory/parts.h"
#include "lab/theory/regression.h"

namespace horner::theory {
namespace {

const std::string kPart = "identities";

Interval exactly(double value) { return {value, value, value}; }
double largest(const at::Tensor& t) { return t.abs().max().item<double>(); }

// Derivatives of T = softmax(z U X^T) X W by autograd against m_a H_W and z H_U Cov_a W.
double derivative_error(const Lab& lab) {
  const int64_t d = lab.options.d, L = 64;
  const uint64_t seed = uint64_t(lab.options.seed);
  const auto draw = [&](int64_t row, int64_t n) {
    return normals(seed, stream(Use::values, 1), row, 1, n * d).view({n, d});
  };
  const at::Tensor X = draw(0, L), z = draw(1, 1)[0], probe = draw(2, 1)[0];
  const at::Tensor U = (draw(3, d) / std::sqrt(double(d))).requires_grad_(true);
  const at::Tensor W = draw(4, d).requires_grad_(true);
  const at::Tensor a = at::matmul(z, U);
  const at::Tensor T = at::matmul(at::matmul(at::softmax(at::matmul(X, a), 0), X), W);
  const auto grads = torch::autograd::grad({at::dot(T, probe)}, {U, W});
  const Tilted t = tilted(X.unsqueeze(0), a.detach());
  // The gradient of probe.T: the H for which m_a H_W probe^T and z H_U Cov_a W probe^T are largest.
  const at::Tensor dU = at::outer(z, at::matmul(t.cov[0], at::matmul(W.detach(), probe)));
  const at::Tensor dW = at::outer(t.mean[0], probe);
  return std::max(largest(grads[0] - dU) / largest(dU), largest(grads[1] - dW) / largest(dW));
}

double gradient_error(const at::Tensor& Sigma, const Parameters& p) {
  const Parameters g = linear_gradient(Sigma, p, 0);
  const double h = 1e-5;
  const auto difference = [&](const Parameters& along) {
    return (linear_risk(Sigma, moved(p, along, h), 0) - linear_risk(Sigma, moved(p, along, -h), 0))
               .item<double>() /
           (2 * h);
  };
  at::Tensor dA = at::zeros_like(p.A);
  const at::Tensor none = at::zeros_like(p.b);
  for (int64_t i = 0; i < dA.numel(); ++i) {
    at::Tensor one = at::zeros_like(p.A);
    one.view(-1)[i] = 1;
    dA.view(-1)[i] = difference({one, none});
  }
  const double db = difference({at::zeros_like(p.A), at::ones_like(p.b)});
  return std::max(largest(dA - g.A), std::abs(db - g.b.item<double>()));
}

struct Arrival {
  double distance, drift;
};

// From alpha Th Th^T with a random Th: fine steps while the flow bends, coarse ones afterwards.
Arrival arrive(const Lab& lab, const std::string& kind) {
  const int64_t d = lab.options.d;
  const uint64_t seed = uint64_t(lab.options.seed);
  const at::Tensor Sigma = covariance(kind, d, seed);
  const at::Tensor eigenvalues = at::linalg_eigvalsh(Sigma);
  const double c = limit_scale(Sigma), alpha = 0.1;
  const double fast = std::pow(eigenvalues.max().item<double>(), 3) / (c * c);
  const double slow = std::pow(eigenvalues.min().item<double>(), 3) / (c * c);
  const at::Tensor Th = normals(seed, stream(Use::values, 2), 0, d, d);
  const at::Tensor start = at::matmul(Th, Th.t());
  Parameters p{
      start * (alpha / start.norm().item<double>()), at::scalar_tensor(alpha, at::kDouble)};
  p = flow(Sigma, p, 20, 0.1 / fast);
  p = flow(Sigma, p, 25 / slow, 1 / fast);
  const at::Tensor A_end = at::linalg_inv(Sigma) * c;
  return {
      std::max(largest(p.A - A_end), std::abs(p.b.item<double>() - 1 / c)),
      std::abs((p.A.square().sum() - p.b * p.b).item<double>())};
}

double one_dimension_error() {
  const double s = 2, x0 = 0.1;
  const at::Tensor Sigma = at::full({1, 1}, s, at::kDouble);
  Parameters p{at::full({1, 1}, x0, at::kDouble), at::scalar_tensor(x0, at::kDouble)};
  double worst = 0;
  for (int i = 1; i <= 8; ++i) {
    p = flow(Sigma, p, 0.25, 1e-2);
    const double closed = 1 / std::sqrt(s + (1 / (x0 * x0) - s) * std::exp(-2 * s * s * 0.25 * i));
    worst = std::max(worst, std::abs(p.b.item<double>() - closed));
  }
  return worst;
}

// 16 prompts of 65,536 tokens: how far their mean output is from the limit, in standard errors.
double limit_distance(const Lab& lab) {
  const int64_t d = lab.options.d, L = 65536, R = 16;
  const uint64_t seed = uint64_t(lab.options.seed);
  const at::Tensor Gamma = covariance("rotated", d, seed), I = at::eye(d, at::kDouble);
  const at::Tensor m = normals(seed, stream(Use::values, 3), 0, 1, d)[0];
  const at::Tensor z = normals(seed, stream(Use::values, 3), 1, 1, d)[0];
  const double sd = std::sqrt(at::dot(at::matmul(z, Gamma), z).item<double>());
  const Layer layer{m, Gamma, I * (0.8 / sd), I, z};
  const at::Tensor means = at::empty({R, d}, at::kDouble);
  lab.in_pieces(R, d, L, [&](int64_t first, int64_t count) {
    const at::Tensor G = lab.normals(Use::fixed, 999, first, {count, L, d}).cpu();
    means.narrow(0, first, count).copy_(tilted(at::matmul(G, root(Gamma)) + m, layer.a()).mean);
  });
  const double error = std::sqrt(leading(layer).output / double(L * R));
  return (means.mean(0) - layer.output()).norm().item<double>() / error;
}

Estimate signs(const Lab& lab) {
  const at::Tensor x = at::sign(lab.normals(Use::fixed, 998, 0, {32, 65536, 1})).cpu();
  return estimate(tilted(x, at::full({1}, 2, at::kDouble)).mean.flatten());
}

// Bounded tokens of variance 1: uniform in +-sqrt 3.
Estimate uniforms(const Lab& lab) {
  const at::Tensor g = lab.normals(Use::fixed, 997, 0, {32, 65536, 1}).cpu();
  const at::Tensor x =
      std::sqrt(3.0) * at::erf(g / std::sqrt(2.0));  // 2 Phi(g) - 1 = erf(g / sqrt 2)
  return estimate(tilted(x, at::full({1}, 2, at::kDouble)).mean.flatten());
}

void derivatives(const Lab& lab) {
  lab.tell(kPart, "derivatives");
  lab.claim(
      kPart,
      "the derivatives of the layer are m_a H_W and z H_U Cov_a W (relative error)",
      exactly(derivative_error(lab)),
      0,
      1e-8
  );
  const uint64_t seed = uint64_t(lab.options.seed);
  const int64_t d = lab.options.d;
  const Parameters p{
      normals(seed, stream(Use::values, 4), 0, d, d) / std::sqrt(double(d)),
      at::scalar_tensor(0.7, at::kDouble)};
  lab.claim(
      kPart,
      "the flow follows the gradient of R_inf (error against finite differences)",
      exactly(gradient_error(covariance("toeplitz", d, seed), p)),
      0,
      1e-7
  );
  lab.claim(
      kPart,
      "d = 1: the flow is its closed form x(t) (largest error)",
      exactly(one_dimension_error()),
      0,
      1e-6
  );
}

void long_prompts(const Lab& lab) {
  lab.tell(kPart, "long prompts");
  lab.claim(
      kPart,
      "softmax over N(m, Gamma) tends to (m + a Gamma) W (distance at L = 65536 in standard "
      "errors)",
      exactly(limit_distance(lab)),
      0,
      4
  );
  lab.claim(
      kPart,
      "that is special to Gaussians: tokens +-1 give tanh(a) = 0.9640 at a = 2, not 2",
      interval(signs(lab)),
      std::tanh(2.0) - 0.02,
      std::tanh(2.0) + 0.02
  );
  const double side = std::sqrt(3.0), limit = side / std::tanh(2 * side) - 0.5;
  lab.claim(
      kPart,
      "uniform tokens of variance 1 give sqrt 3 coth(sqrt 3 a) - 1/a = 1.2354 at a = 2",
      interval(uniforms(lab)),
      limit - 0.02,
      limit + 0.02
  );
}

void linear_flow(const Lab& lab) {
  lab.tell(kPart, "linear flow");
  for (const std::string kind : {"identity", "toeplitz"}) {
    const Arrival end = arrive(lab, kind);
    lab.claim(
        kPart, kind + ": the flow ends in A*, b* (largest distance)", exactly(end.distance), 0, 1e-6
    );
    lab.claim(kPart, kind + ": the flow keeps |A|^2 - b^2 (drift)", exactly(end.drift), 0, 1e-6);
  }
}

}  // namespace

void identities(const Lab& lab) {
  derivatives(lab);
  long_prompts(lab);
  linear_flow(lab);
}

}  // namespace horner::theory
