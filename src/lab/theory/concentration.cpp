// Output and gradients of a finite prompt against their limit: errors, bias, exponents, constants.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "lab/theory/limit.h"
#include "lab/theory/parts.h"

namespace horner::theory {
namespace {

struct Case {
  std::string name;
  Layer layer;  // on the device
  Leading leading;
  double e;
  at::Tensor root;
};

// z U has the logit standard deviation sqrt(a Gamma a^T) = sd; |z| = 2, U a multiple of I.
Case make_case(const Lab& lab, const std::string& kind, double sd) {
  const int64_t d = lab.options.d;
  const uint64_t seed = uint64_t(lab.options.seed);
  const bool plain = kind == "identity";
  const at::Tensor I = at::eye(d, at::kDouble);
  const at::Tensor Gamma = covariance(kind, d, seed);
  at::Tensor z =
      plain ? at::ones({d}, at::kDouble) : normals(seed, stream(Use::queries), 0, 1, d)[0];
  z = z * (2 / z.norm());
  const double scale = sd / std::sqrt(at::dot(at::matmul(z, Gamma), z).item<double>());
  Layer layer{
      .m = plain ? at::zeros({d}, at::kDouble) : at::ones({d}, at::kDouble),
      .Gamma = Gamma,
      .U = I * scale,
      .W = plain ? I : normals(seed, stream(Use::values), 0, d, d) / std::sqrt(double(d)),
      .z = z};
  const Leading constants = leading(layer);
  const double e = layer.e();
  for (at::Tensor* t : {&layer.m, &layer.Gamma, &layer.U, &layer.W, &layer.z})
    *t = t->to(lab.device);
  return {fmt::format("{}, logit sd {}", kind, sd), layer, constants, e, root(layer.Gamma)};
}

constexpr size_t kCount = 5;
const char* const kQuantities[kCount] = {
    "output", "W-gradient", "U-gradient", "bias", "linear attention"};

at::Tensor squares(const at::Tensor& t) { return t.flatten(1).square().sum(1); }  // (R,...) -> (R)

// Of a piece of prompts, G (R,L,d) standard normals: (quantities,R), in the order of kQuantities.
at::Tensor measure(const Case& c, const at::Tensor& G) {
  const auto& [m, Gamma, U, W, z] = c.layer;
  const double L = double(G.size(1));
  const at::Tensor a = c.layer.a(), b = at::matmul(a, Gamma), bW = at::matmul(b, W);
  const at::Tensor Y = at::matmul(G, c.root);          // x_i - m, (R,L,d)
  const Tilted t = tilted(Y, a);                       // softmax does not see m
  const at::Tensor mean_error = t.mean - b;            // m_a - (m + b)
  const at::Tensor error = at::matmul(mean_error, W);  // T_L - T
  // Bias along -bW. The first-order term (1/L) sum_i w_i (x_i - m - b), w_i = exp(a y_i^T) / E, has
  // mean zero; without it what is left is of the order of the bias itself.
  const at::Tensor score = at::matmul(Y, a).unsqueeze(1);                  // (R,1,L)
  const at::Tensor w = at::exp(score - std::log(c.e) / 2);                 // (R,1,L)
  const at::Tensor first = (at::bmm(w, Y).squeeze(1) - w.sum(2) * b) / L;  // (R,d)
  const at::Tensor linear = at::bmm(score, Y).squeeze(1) / L;              // a Gamma_hat
  return at::stack(
      {squares(error),
       squares(mean_error) * double(W.size(1)),
       squares(at::matmul(t.cov - Gamma, W)) * z.square().sum(),
       at::matmul(at::matmul(first, W) - error, bW / bW.norm()),
       squares(at::matmul(linear - b, W))}
  );
}

double constant(const Leading& l, const std::string& quantity) {
  if (quantity == "output") return l.output;
  if (quantity == "bias") return l.bias;
  if (quantity == "W-gradient") return l.W_gradient;
  if (quantity == "U-gradient") return l.U_gradient;
  return l.linear;
}

void claims(const Lab& lab, const Case& c, const std::string& quantity, double slack) {
  const std::string what = quantity == "bias" ? quantity : quantity + " error";
  const Curve& curve = lab.report.curve("concentration", c.name, quantity);
  if (const auto k = curve.exponent()) {
    lab.claim(
        curve.part,
        fmt::format("{}: the {} falls like L^-1", c.name, what),
        *k,
        -1 - slack,
        -1 + slack
    );
  }
  const Point& last = curve.points.back();
  if (last.L < curve.shortest) return;
  lab.claim(
      curve.part,
      fmt::format(
          "{}: the {} is {:.4g} / L (ratio at L = {})",
          c.name,
          what,
          constant(c.leading, quantity),
          last.L
      ),
      ratio(last.measured, *last.predicted),
      0.9,
      1.1
  );
}

}  // namespace

void concentration(const Lab& lab) {
  const Options& o = lab.options;
  std::vector<Case> cases;
  for (const double sd : {0.6, 1.2, 2.0}) cases.push_back(make_case(lab, "identity", sd));
  for (const char* kind : {"toeplitz", "rotated"}) cases.push_back(make_case(lab, kind, 0.6));
  const size_t begin = lab.report.curves.size();
  for (const Case& c : cases) {
    for (const std::string quantity : kQuantities) {
      const bool exact = quantity == "linear attention";
      lab.report.curves.push_back(
          {"concentration", c.name, quantity, {}, exact ? 0 : int64_t(std::ceil(100 * c.e))}
      );
    }
  }
  for (size_t l = 0; l < o.lengths.size(); ++l) {
    const int64_t L = o.lengths[l];
    lab.tell("concentration", fmt::format("L = {}", L));
    const int64_t count_cases = int64_t(cases.size());
    const at::Tensor samples = at::empty({count_cases, kCount, o.repeats}, at::kDouble);
    lab.in_pieces(o.repeats, o.d, L, [&](int64_t first, int64_t count) {
      const at::Tensor G = lab.normals(Use::fixed, l, first, {count, L, o.d});
      for (int64_t i = 0; i < count_cases; ++i)
        samples[i].narrow(1, first, count).copy_(measure(cases[size_t(i)], G));
    });
    for (size_t i = 0; i < cases.size(); ++i) {
      for (size_t j = 0; j < kCount; ++j) {
        const double predicted = constant(cases[i].leading, kQuantities[j]) / double(L);
        lab.report.curves[begin + i * kCount + j].points.push_back(
            {L, estimate(samples[int64_t(i)][int64_t(j)]), predicted}
        );
      }
    }
  }
  for (const Case& c : cases) {
    if (std::log(c.e) > 0.5) continue;  // the leading term needs longer prompts: see the table
    for (const std::string quantity : kQuantities)
      claims(lab, c, quantity, quantity == "U-gradient" ? 0.1 : 0.05);
  }
}

void random_query(const Lab& lab) {
  const Options& o = lab.options;
  const std::vector<double> scales = {0.3, 0.5, 0.6, 0.7, 0.8, 1.0, 1.3};
  const int64_t R = std::max<int64_t>(o.repeats / 4, 2);
  const size_t begin = lab.report.curves.size();
  std::vector<double> constants;
  for (const double s : scales) {
    const at::Tensor I = at::eye(o.d, at::kDouble);
    constants.push_back(leading_random_query({I[0], I, I * s, I, I[0]}));
    lab.report.curves.push_back(
        {"random query", fmt::format("U = {} I", s), "output", {}, o.lengths.back() / 16}
    );
  }
  for (size_t l = 0; l < o.lengths.size(); ++l) {
    const int64_t L = o.lengths[l];
    lab.tell("random query", fmt::format("L = {}", L));
    const at::Tensor samples = at::empty({int64_t(scales.size()), R}, at::kDouble);
    lab.in_pieces(R, o.queries, L, [&](int64_t first, int64_t count) {
      const at::Tensor G = lab.normals(Use::random, l, first, {count, L + o.queries, o.d});
      const at::Tensor X = G.narrow(1, 0, L).contiguous();  // (count,L,d)
      const at::Tensor z = G.narrow(1, L, o.queries).contiguous();
      for (size_t i = 0; i < scales.size(); ++i) {
        const at::Tensor a = z * scales[i];
        const at::Tensor error = tilted_mean(X, a) - a;  // T_L - T, (count,Q,d)
        samples[int64_t(i)].narrow(0, first, count).copy_(error.square().sum(2).mean(1));
      }
    });
    for (size_t i = 0; i < scales.size(); ++i) {
      Point p{L, estimate(samples[int64_t(i)]), std::nullopt};
      if (std::isfinite(constants[i])) p.predicted = constants[i] / double(L);
      lab.report.curves[begin + i].points.push_back(p);
    }
  }
  const Curve& small = lab.report.curves[begin];
  const Curve& large = lab.report.curves[begin + scales.size() - 1];
  const auto k_small = small.exponent(), k_large = large.exponent();
  if (!k_small || !k_large) return;
  if (constants[0] * 100 < double(o.lengths.back()) * double(o.d)) {
    lab.claim(small.part, small.name + ": the output error falls like L^-1", *k_small, -1.1, -0.9);
  }
  const double half = std::hypot(k_large->high - k_large->value, k_small->high - k_small->value);
  const double gain = k_large->value - k_small->value;
  lab.claim(
      small.part,
      fmt::format(
          "larger logits concentrate more slowly: exponent of {} less that of {}",
          large.name,
          small.name
      ),
      {gain, gain - half, gain + half},
      0,
      INFINITY
  );
}

}  // namespace horner::theory
