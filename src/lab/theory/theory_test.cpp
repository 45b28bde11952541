#include "lab/theory/theory.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "core/check.h"
#include "lab/theory/limit.h"
#include "lab/theory/regression.h"
#include "ops/op.h"

namespace horner::theory {
namespace {

at::Tensor matrix(std::vector<double> values, int64_t rows) {
  return at::tensor(values, at::kDouble).view({rows, -1});
}
at::Tensor row(std::vector<double> values) { return at::tensor(values, at::kDouble); }
at::Tensor scalar(double x) { return at::scalar_tensor(x, at::kDouble); }
void expect_close(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  EXPECT_LE((a - b).abs().max().item<double>(), tolerance) << a << b;
}
Tell quiet() {
  return [](size_t, size_t, const std::string&, const std::string&) {};
}

// The worked example of the specification: m, Gamma, a, W = I.
Layer worked() {
  return {
      row({1, -1}),
      matrix({2, 0.5, 0.5, 1}, 2),
      at::eye(2, at::kDouble),
      at::eye(2, at::kDouble),
      row({0.5, -0.4})};
}

TEST(Theory, WorkedExampleOfTheLimit) {
  const Layer layer = worked();
  expect_close(layer.output(), row({1.8, -1.15}), 1e-12);
  EXPECT_NEAR(layer.e(), 1.584074, 1e-6);
  const Leading l = leading(layer);
  EXPECT_NEAR(l.output, 5.8017, 1e-4);
  EXPECT_NEAR(l.bias, std::hypot(1.267, 0.238), 1e-3);
  EXPECT_NEAR(l.W_gradient, 2 * 5.8017, 2e-4);
  EXPECT_NEAR(l.U_gradient, 0.41 * 33.707, 1e-3);
}

// d = 1: L E|.|^2 of a weighted mean is E[w^2 f^2], w = exp(a x) / E exp(a x), here by the
// trapezoidal rule over the density of x.
TEST(Theory, LeadingTermsByQuadrature) {
  const double m = 0.3, G = 1.7, a = 0.6, W = 1.4, z = 1.2;
  const Layer layer{row({m}), matrix({G}, 1), matrix({a / z}, 1), matrix({W}, 1), row({z})};
  double norm = 0, output = 0, gradient = 0, linear = 0;
  const double limit = m + a * G, step = 1e-3;
  for (double x = -20; x <= 25; x += step)
    norm += step * std::exp(a * x - (x - m) * (x - m) / (2 * G)) / std::sqrt(2 * M_PI * G);
  for (double x = -20; x <= 25; x += step) {
    const double density = step * std::exp(-(x - m) * (x - m) / (2 * G)) / std::sqrt(2 * M_PI * G);
    const double w = std::exp(a * x) / norm, y = x - limit;
    output += density * w * w * y * y * W * W;
    gradient += density * w * w * std::pow((y * y - G) * z * W, 2);
    linear += density * std::pow((a * (x - m) * (x - m) - a * G) * W, 2);
  }
  const Leading l = leading(layer);
  EXPECT_NEAR(l.output, output, 1e-8 * output);
  EXPECT_NEAR(l.U_gradient, gradient, 1e-8 * gradient);
  EXPECT_NEAR(l.linear, linear, 1e-8 * linear);
}

// The same constants with any W in d = 3, by drawing x from N(m + 2b, Gamma), which is what w^2 makes
// of its density: E[w^2 f(x)] = e E[f(x + 2b)].
TEST(Theory, LeadingTermsByMonteCarlo) {
  const at::Tensor Gamma = covariance("rotated", 3, 1), W = normals(1, 1, 0, 3, 2);
  const Layer layer{
      at::zeros({3}, at::kDouble),
      Gamma,
      matrix({.5, .1, 0, 0, .3, .2, -.1, 0, .4}, 3),
      W,
      row({1, -1, .5})};
  const at::Tensor b = at::matmul(layer.a(), Gamma);
  const at::Tensor y = at::matmul(normals(1, 2, 0, 200000, 3), root(Gamma)) + b;  // x - m - b
  const at::Tensor yW = at::matmul(y, W);
  const at::Tensor square = y.unsqueeze(2) * y.unsqueeze(1) - Gamma;  // (n,3,3)
  const Estimate output = estimate(yW.square().sum(1) * layer.e());
  const Estimate gradient =
      estimate(at::matmul(square, W).square().sum({1, 2}) * (layer.e() * layer.z.square().sum()));
  const Leading l = leading(layer);
  EXPECT_NEAR(l.output, output.value, 4 * output.error);
  EXPECT_NEAR(l.U_gradient, gradient.value, 4 * gradient.error);
  EXPECT_LT(output.error / output.value, 0.01);
  EXPECT_LT(gradient.error / gradient.value, 0.02);
}

TEST(Theory, RandomQueryConstants) {
  const at::Tensor I = at::eye(4, at::kDouble);
  const auto at_scale = [&](double s) { return leading_random_query({I[0], I, I * s, I, I[0]}); };
  EXPECT_NEAR(at_scale(0.3), 6.602, 1e-3);
  EXPECT_NEAR(at_scale(0.5), 24, 1e-9);
  EXPECT_NEAR(at_scale(0.6), 116.6, 0.1);
  EXPECT_TRUE(std::isinf(at_scale(0.8)));
}

// The mean over z of the constant at a fixed query.
TEST(Theory, RandomQueryConstantIsAMeanOverQueries) {
  const at::Tensor Gamma = covariance("toeplitz", 2, 0), W = matrix({1, 2, 0, 1}, 2);
  const at::Tensor U = matrix({0.2, 0.1, -0.1, 0.15}, 2);
  const at::Tensor z = normals(3, 0, 0, 4000, 2);
  at::Tensor values = at::empty({4000}, at::kDouble);
  for (int64_t i = 0; i < 4000; ++i) values[i] = leading({Gamma[0], Gamma, U, W, z[i]}).output;
  const Estimate e = estimate(values);
  EXPECT_NEAR(leading_random_query({Gamma[0], Gamma, U, W, z[0]}), e.value, 4 * e.error);
  EXPECT_LT(e.error / e.value, 0.01);
}

// The layer of the theory is the op `attention` without a mask.
TEST(Theory, TiltedMeanIsTheOp) {
  const at::Tensor X = normals(0, 1, 0, 3, 20 * 4).view({3, 20, 4});
  const at::Tensor a = normals(0, 2, 0, 3, 20 * 4).view({3, 20, 4});
  Inputs in;
  in.q = a.unsqueeze(2), in.k = X.unsqueeze(2), in.v = X.unsqueeze(2);
  horner::Options options;
  options.causal = false;
  options.scale = 1;
  const at::Tensor o = run(find_op("attention"), in, {}, options).o.squeeze(2);
  expect_close(tilted_mean(X, a), o, 1e-12);
  expect_close(tilted(X, a[0][0]).mean[0], tilted_mean(X, a)[0][0], 1e-12);
}

TEST(Theory, NormalsDependOnTheirNameAlone) {
  const at::Tensor all = normals(7, 3, 0, 6, 1001);
  EXPECT_TRUE(at::equal(all.narrow(0, 2, 3), normals(7, 3, 2, 3, 1001)));
  EXPECT_FALSE(at::equal(all[0], normals(7, 4, 0, 1, 1001)[0]));
  const at::Tensor many = normals(1, 1, 0, 200, 1000).flatten();
  EXPECT_NEAR(many.mean().item<double>(), 0, 4 / std::sqrt(2e5));
  EXPECT_NEAR(many.square().mean().item<double>(), 1, 4 * std::sqrt(2 / 2e5));
  EXPECT_NEAR(many.pow(4).mean().item<double>(), 3, 4 * std::sqrt(96 / 2e5));
}

// Tokens (x, y), query (x, 0), U = diag(A, 0), W = diag(0, b): the last output is b m_a w^T.
TEST(Theory, RegressionIsALayerOnTokensAndAnswers) {
  const int64_t d = 3, L = 17;
  const at::Tensor X = normals(2, 1, 0, L, d), w = row({0.3, -1, 2}), A = normals(2, 2, 0, d, d);
  const at::Tensor x = row({1, 0.5, -0.2});
  const at::Tensor tokens = at::cat({X, at::matmul(X, w).unsqueeze(1)}, 1);  // (L,d+1)
  at::Tensor U = at::zeros({d + 1, d + 1}, at::kDouble);
  U.narrow(0, 0, d).narrow(1, 0, d).copy_(A);
  const at::Tensor z = at::cat({x, at::zeros({1}, at::kDouble)});
  const at::Tensor full = tilted(tokens.unsqueeze(0), at::matmul(z, U)).mean[0];
  const at::Tensor m_a = tilted(X.unsqueeze(0), at::matmul(x, A)).mean[0];
  expect_close(full[d], at::dot(m_a, w), 1e-13);
}

TEST(Theory, SoftmaxRiskGradientIsAutograd) {
  const at::Tensor X = normals(4, 1, 0, 6, 30 * 3).view({2, 3, 30, 3});
  const at::Tensor x = normals(4, 2, 0, 6, 5 * 3).view({2, 3, 5, 3});
  const Parameters p{
      normals(4, 3, 0, 2, 9).view({2, 3, 3}).requires_grad_(true),
      row({0.6, 1.3}).requires_grad_(true)};
  const at::Tensor Sigma = covariance("toeplitz", 3, 0);
  for (const bool limit : {false, true}) {
    const SoftmaxRisk r = limit ? limit_risk(Sigma, x, p) : softmax_risk(X, x, p);
    const auto grads = torch::autograd::grad({r.risk.sum()}, {p.A, p.b}, {}, true);
    expect_close(grads[0], r.gradient.A.detach(), 1e-12);
    expect_close(grads[1], r.gradient.b.detach(), 1e-12);
  }
}

// Of a single run: the risk written out as its definition, prompt by prompt.
TEST(Theory, SoftmaxRiskIsItsDefinition) {
  const at::Tensor X = normals(4, 1, 0, 3, 30 * 3).view({1, 3, 30, 3});
  const at::Tensor x = normals(4, 2, 0, 3, 5 * 3).view({1, 3, 5, 3});
  const Parameters p{normals(4, 3, 0, 1, 9).view({1, 3, 3}), row({0.6})};
  double sum = 0;
  for (int64_t n = 0; n < 3; ++n) {
    for (int64_t q = 0; q < 5; ++q) {
      const at::Tensor weights = at::exp(at::matmul(X[0][n], at::matmul(x[0][n][q], p.A[0])));
      const at::Tensor m = at::matmul(weights, X[0][n]) / weights.sum();
      sum += (p.b[0] * m - x[0][n][q]).square().sum().item<double>() / 2;
    }
  }
  EXPECT_NEAR(softmax_risk(X, x, p).risk.item<double>(), sum / 15, 1e-12);
}

TEST(Theory, LimitRiskHasTheClosedMean) {
  const at::Tensor Sigma = covariance("rotated", 3, 5);
  const Parameters p{normals(4, 3, 0, 1, 9).view({1, 3, 3}) / 2, row({0.8})};
  const at::Tensor x = at::matmul(normals(4, 4, 0, 100000, 3), root(Sigma)).view({1, 1, -1, 3});
  const SoftmaxRisk r = limit_risk(Sigma, x, p);
  EXPECT_NEAR(r.risk.item<double>() / linear_risk(Sigma, p, 0).item<double>(), 1, 0.03);
  const Parameters g = linear_gradient(Sigma, p, 0);
  expect_close(r.gradient.A, g.A, 0.05 * g.A.abs().max().item<double>());
  EXPECT_NEAR(r.gradient.b.item<double>() / g.b.item<double>(), 1, 0.05);
}

// At a finite L, with any A: tasks w and prompts drawn directly.
TEST(Theory, LinearRiskAtFiniteLength) {
  const int64_t d = 3, L = 5, n = 60000;
  const at::Tensor Sigma = covariance("toeplitz", d, 0);
  const Parameters p{normals(6, 1, 0, d, d) / 2, scalar(0.7)};
  const at::Tensor G = normals(6, 2, 0, n, (L + 2) * d).reshape({n, L + 2, d});
  const at::Tensor all = at::matmul(G.narrow(1, 0, L + 1), root(Sigma)), w = G.select(1, L + 1);
  const at::Tensor X = all.narrow(1, 0, L), x = all.select(1, L);
  const at::Tensor y = (X * w.unsqueeze(1)).sum(2);                       // (n,L)
  const at::Tensor score = (X * at::matmul(x, p.A).unsqueeze(1)).sum(2);  // (n,L)
  const at::Tensor error = p.b * (score * y).mean(1) - (x * w).sum(1);
  const Estimate risk = estimate(error.square() / 2);
  const double closed = linear_risk(Sigma, p, 1.0 / L).item<double>();
  EXPECT_NEAR(risk.value, closed, 4 * risk.error);
  EXPECT_LT(risk.error / closed, 0.03);
  EXPECT_GT(std::abs(risk.value - linear_risk(Sigma, p, 0).item<double>()), 8 * risk.error);
}

TEST(Theory, LinearGradientAtFiniteLengthIsAutograd) {
  const at::Tensor Sigma = covariance("rotated", 4, 2);
  const Parameters p{
      normals(6, 1, 0, 4, 4).clone().requires_grad_(true), scalar(0.7).requires_grad_(true)};
  for (const double one_over_L : {0.0, 0.1}) {
    const auto grads = torch::autograd::grad({linear_risk(Sigma, p, one_over_L)}, {p.A, p.b});
    const Parameters g = linear_gradient(Sigma, p, one_over_L);
    expect_close(grads[0], g.A.detach(), 1e-11);
    expect_close(grads[1], g.b.detach(), 1e-11);
  }
}

TEST(Theory, FlowOfTheWorkedExample) {
  const at::Tensor Sigma = matrix({1, 0, 0, 2}, 2);
  Parameters p{at::eye(2, at::kDouble) * (0.1 / std::sqrt(2)), scalar(0.1)};
  EXPECT_NEAR(linear_risk(Sigma, p, 0).item<double>(), 1.464869661, 1e-9);
  const double table[4][5] = {
      {0.5, 0.629004984, 0.201119893, 0.490695754, 0.530312676},
      {1, 0.198824804, 0.465544208, 0.646156970, 0.796398292},
      {2, 0.021896550, 0.816471781, 0.525809028, 0.971134030},
      {5, 6.0412e-7, 0.945113501, 0.473123327, 1.056922519}};
  double time = 0;
  for (const auto& [t, risk, a11, a22, b] : table) {
    p = flow(Sigma, p, t - time, 5e-3);
    time = t;
    EXPECT_NEAR(linear_risk(Sigma, p, 0).item<double>(), risk, 1e-7);
    expect_close(p.A, matrix({a11, 0, 0, a22}, 2), 1e-7);
    EXPECT_NEAR(p.b.item<double>(), b, 1e-7);
  }
  EXPECT_NEAR((p.A.square().sum() - p.b * p.b).item<double>(), 0, 1e-8);
}

TEST(Theory, FlowEndsInTheCalibratedPoint) {
  const at::Tensor Sigma = matrix({1, 0.5, 0.5, 1}, 2);
  Parameters p{at::eye(2, at::kDouble) * (0.1 / std::sqrt(2)), scalar(0.1)};
  p = flow(Sigma, p, 5, 0.02);
  EXPECT_NEAR(linear_risk(Sigma, p, 0).item<double>(), 0.0805014, 1e-6);
  p = flow(Sigma, p, 55, 0.05);
  expect_close(p.A, matrix({0.918299539, -0.459149769, -0.459149769, 0.918299539}, 2), 1e-6);
  EXPECT_NEAR(p.b.item<double>(), 1.451959058, 1e-6);
  EXPECT_NEAR(1 / limit_scale(Sigma), 1.451959058, 1e-9);
}

TEST(Theory, FlowInOneDimension) {
  const at::Tensor Sigma = matrix({2}, 1);
  Parameters p{matrix({0.1}, 1), scalar(0.1)};
  double time = 0;
  for (const auto& [t, x] :
       {std::pair{0.25, 0.255965876}, {0.5, 0.513331560}, {1.0, 0.701365867}, {2.0, 0.707104832}}) {
    p = flow(Sigma, p, t - time, 5e-3);
    time = t;
    EXPECT_NEAR(p.b.item<double>(), x, 1e-8);
  }
}

TEST(Theory, CalibratedRisk) {
  const at::Tensor I = at::eye(5, at::kDouble);
  EXPECT_NEAR(calibrated_risk(I, 0.3) / 64, 0.791, 5e-4);
  EXPECT_NEAR(calibrated_risk(I, 0.3) / 16384, 3.09e-3, 5e-6);
  EXPECT_TRUE(std::isinf(
      calibrated_risk(at::eye(4, at::kDouble), limit_scale(at::eye(4, at::kDouble)) + 1e-12)
  ));
}

TEST(Theory, ExponentOfAPowerLaw) {
  Curve curve{"", "", "", {}, 0};
  for (const int64_t L : {8, 64, 512})
    curve.points.push_back({L, {3 * std::pow(L, -0.7), 1e-3 * std::pow(L, -0.7)}, {}});
  EXPECT_NEAR(curve.exponent()->value, -0.7, 1e-12);
  curve.shortest = 100;
  EXPECT_FALSE(curve.exponent());
}

// Of 500 noisy curves with exponent -1, the interval holds it in about 95 %.
TEST(Theory, IntervalOfTheExponentCovers) {
  const at::Tensor noise = normals(9, 0, 0, 500, 5);
  int covered = 0;
  for (int64_t i = 0; i < 500; ++i) {
    Curve curve{"", "", "", {}, 0};
    for (int64_t j = 0; j < 5; ++j) {
      const double L = double(16 << (2 * j)), error = (j % 2 ? 0.01 : 0.03) / L;
      curve.points.push_back({int64_t(L), {1 / L + error * noise[i][j].item<double>(), error}, {}});
    }
    covered += curve.exponent()->low <= -1 && curve.exponent()->high >= -1;
  }
  EXPECT_GT(covered, 460);
  EXPECT_LT(covered, 490);
}

TEST(Theory, VerdictOfAClaim) {
  const auto verdict = [](double low, double high) {
    return Claim{"", "", {(low + high) / 2, low, high}, -1.1, -0.9}.verdict();
  };
  EXPECT_EQ(verdict(-1.05, -0.95), "holds");
  EXPECT_EQ(verdict(-1.2, -0.95), "not shown");
  EXPECT_EQ(verdict(-2, 0), "not shown");
  EXPECT_EQ(verdict(-0.8, -0.7), "does not hold");
}

Options small() {
  Options o;
  o.lengths = {256, 1024};
  o.repeats = 800;
  o.queries = 4;
  o.training = {16, 64};
  o.runs = 2;
  o.horizon = 2;
  o.device = "cpu";
  return o;
}

TEST(Theory, StudyAtASmallSize) {
  const Report report = study(small(), quiet());
  for (const Claim& c : report.claims) EXPECT_NE(c.verdict(), "does not hold") << c.sentence();
  for (const char* quantity : {"output", "W-gradient", "U-gradient", "bias", "linear attention"}) {
    const Curve& curve = report.curve("concentration", "identity, logit sd 0.6", quantity);
    const Interval k = *curve.exponent();
    EXPECT_LE(k.low - 0.05, -1) << quantity;
    EXPECT_GE(k.high + 0.05, -1) << quantity;
    EXPECT_LT(k.high - k.low, 0.4) << quantity;
    for (const Point& p : curve.points) {
      const Interval r = ratio(p.measured, *p.predicted);
      EXPECT_LE(r.low - 0.05, 1) << quantity << p.L;
      EXPECT_GE(r.high + 0.05, 1) << quantity << p.L;
    }
  }
  ASSERT_EQ(report.trajectories.size(), 6u);  // two covariances: the limit and two lengths
  const Json json = Json::parse(report.json().dump());
  EXPECT_EQ(json["claims"].size(), report.claims.size());
  EXPECT_EQ(json["curves"].size(), report.curves.size());
}

TEST(Theory, SameSeedSameNumbers) {
  Options o = small();
  o.lengths = {64};
  o.repeats = 16;
  o.horizon = 0.2;
  const auto numbers = [&] {
    Json json = study(o, quiet()).json();
    json.erase("seconds");
    return json.dump();
  };
  const std::string first = numbers();
  EXPECT_EQ(first, numbers());
  o.seed = 1;
  EXPECT_NE(first, numbers());
}

TEST(Theory, RefusesWhatItCannotMeasure) {
  const auto refused = [](void (*change)(Options&)) {
    Options o;
    change(o);
    EXPECT_THROW(study(o, quiet()), UsageError);
  };
  refused([](Options& o) { o.d = 0; });
  refused([](Options& o) { o.lengths = {}; });
  refused([](Options& o) { o.lengths = {64, 64}; });
  refused([](Options& o) { o.lengths = {1}; });  // the bounds are false at L = 1
  refused([](Options& o) { o.runs = 1; });
  refused([](Options& o) { o.horizon = NAN; });
}

// Measured elsewhere with 300 prompts and 20 queries each, d = 4: exponents over L = 1024 .. 16384.
TEST(TheorySlow, ExponentsOfRandomQueries) {
  Options o = small();
  o.lengths = {1024, 4096, 16384};
  o.repeats = 1200;
  o.queries = 20;
  o.training = {};
  const Report report = study(o, quiet());
  const std::pair<const char*, double> table[] = {
      {"U = 0.3 I", -1.00},
      {"U = 0.5 I", -0.93},
      {"U = 0.6 I", -0.82},
      {"U = 0.7 I", -0.70},
      {"U = 0.8 I", -0.60},
      {"U = 1 I", -0.48},
      {"U = 1.3 I", -0.37}};
  for (const auto& [name, expected] : table) {
    const Interval k = *report.curve("random query", name, "output").exponent();
    EXPECT_LE(k.low, expected + 0.1) << name;
    EXPECT_GE(k.high, expected - 0.1) << name;
    EXPECT_LT(k.high - k.low, 0.3) << name;
  }
  const Curve& risk = report.curve("regression", "identity, t = c = 0.707", "softmax risk");
  EXPECT_NEAR(risk.points[0].measured.value, 0.0616, 4 * risk.points[0].measured.error + 0.003);
}

// d = 4, no noise. Trained to the end the risk is said to fall 30 to 70 times from L = 16 to 1024; up
// to time 6, before softmax has drifted to smaller A, it falls less.
TEST(TheorySlow, TrainedRiskFallsWithTheLength) {
  Options o = small();
  o.lengths = {64};
  o.repeats = 512;
  o.queries = 16;
  o.training = {16, 1024};
  o.horizon = 6;
  const Report report = study(o, quiet());
  const Curve& risk = report.curve("dynamics", "identity", "trained softmax risk");
  const double fall = risk.points[0].measured.value / risk.points[1].measured.value;
  EXPECT_GT(fall, 10);
  EXPECT_LT(fall, 70);
  EXPECT_LT(report.curve("dynamics", "identity", "distance, half learnt").exponent()->high, 0);
}

}  // namespace
}  // namespace horner::theory
