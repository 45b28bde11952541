// The risk of in-context regression at given parameters against its closed forms.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "lab/theory/limit.h"
#include "lab/theory/parts.h"
#include "lab/theory/regression.h"

namespace horner::theory {
namespace {

const std::string kPart = "regression";

// With A = t Sigma^{-1} and x = g root(Sigma) the scores are t g g_i^T for any Sigma. So one softmax serves all covariances
// with the same t.
struct Setting {
  std::string name;
  double t;
  at::Tensor Sigma, root;  // (d,d)
  double constant;         // lim L R_L
};

std::vector<Setting> settings(const Lab& lab) {
  std::vector<Setting> list;
  for (const std::string kind : {"identity", "toeplitz", "rotated"}) {
    const at::Tensor Sigma = covariance(kind, lab.options.d, uint64_t(lab.options.seed));
    const at::Tensor root_Sigma = root(Sigma).to(lab.device);
    const double c = limit_scale(Sigma);
    list.push_back({kind + ", t = 0.3", 0.3, Sigma, root_Sigma, calibrated_risk(Sigma, 0.3)});
    list.push_back(
        {fmt::format("{}, t = c = {:.3f}", kind, c),
         c,
         Sigma,
         root_Sigma,
         calibrated_risk(Sigma, c)}
    );
  }
  return list;
}

at::Tensor risk_of(const at::Tensor& error, const Setting& s) {  // (n,Q,d) -> (n)
  return at::matmul(error, s.root).square().sum(2).mean(1) / 2;
}

void measure_length(const Lab& lab, size_t l, const std::vector<Setting>& list, size_t begin) {
  const Options& o = lab.options;
  const int64_t L = o.lengths[l], R = std::max<int64_t>(o.repeats / 4, 2);
  const at::Tensor softmax = at::empty({int64_t(list.size()), R}, at::kDouble);
  const at::Tensor linear = at::empty_like(softmax);
  lab.in_pieces(R, o.queries, L, [&](int64_t first, int64_t count) {
    const at::Tensor all = lab.normals(Use::risk, l, first, {count, L + o.queries, o.d});
    const at::Tensor G = all.narrow(1, 0, L).contiguous();
    const at::Tensor g = all.narrow(1, L, o.queries).contiguous();
    const at::Tensor hat = at::bmm(G.transpose(1, 2), G) / double(L);  // Sigma_hat, whitened
    const at::Tensor linear_error = at::bmm(g, hat) - g;
    at::Tensor fixed;  // at t = 0.3
    for (size_t i = 0; i < list.size(); ++i) {
      const double t = list[i].t;
      const bool shared = i % 2 == 0;
      at::Tensor error = shared ? fixed : at::Tensor();
      if (!error.defined()) error = tilted_mean(G, g * t) / t - g;  // b m_a - x
      if (shared) fixed = error;
      const auto put = [&](const at::Tensor& to, const at::Tensor& e) {
        to[int64_t(i)].narrow(0, first, count).copy_(risk_of(e, list[i]));
      };
      put(softmax, error);
      if (shared) put(linear, linear_error);
    }
  });
  Curve* curve = &lab.report.curves[begin];
  for (size_t i = 0; i < list.size(); ++i) {
    Point p{L, estimate(softmax[int64_t(i)]), std::nullopt};
    if (std::isfinite(list[i].constant)) p.predicted = list[i].constant / double(L);
    curve++->points.push_back(p);
    if (i % 2 != 0) continue;
    const Parameters calibrated{
        at::linalg_inv(list[i].Sigma) * list[i].t, at::scalar_tensor(1 / list[i].t, at::kDouble)};
    const double exact = linear_risk(list[i].Sigma, calibrated, 1 / double(L)).item<double>();
    curve++->points.push_back({L, estimate(linear[int64_t(i)]), exact});
  }
}

// Tasks, queries and weights drawn directly, prediction b x A Sigma w^T.
void population(const Lab& lab) {
  const int64_t d = lab.options.d, n = 50 * lab.options.repeats;
  const uint64_t seed = uint64_t(lab.options.seed);
  const at::Tensor Sigma = covariance("toeplitz", d, seed);
  const Parameters p{
      normals(seed, stream(Use::population), 0, d, d) / double(d),
      at::scalar_tensor(0.7, at::kDouble)};
  const at::Tensor G = normals(seed, stream(Use::population, 1), 0, n, 2 * d);
  const at::Tensor x = at::matmul(G.narrow(1, 0, d), root(Sigma)), w = G.narrow(1, d, d);
  const at::Tensor prediction = (at::matmul(at::matmul(x, p.A), Sigma) * w).sum(1) * p.b;
  const Estimate risk = estimate((prediction - (x * w).sum(1)).square() / 2);
  const double closed = linear_risk(Sigma, p, 0).item<double>();
  lab.claim(
      kPart,
      fmt::format("the population risk R_inf(A, b) is {:.4g} (ratio, {} tasks)", closed, n),
      ratio(risk, closed),
      0.95,
      1.05
  );
}

}  // namespace

void regression(const Lab& lab) {
  const std::vector<Setting> list = settings(lab);
  const double d = double(lab.options.d);
  const size_t begin = lab.report.curves.size();
  for (size_t i = 0; i < list.size(); ++i) {
    // L must be much larger than E exp(a Gamma a^T) over the queries, or the leading term does not hold.
    const double e = std::pow(1 - 2 * 0.3 * 0.3, -d / 2);
    const int64_t shortest =
        i % 2 == 0 ? int64_t(std::ceil(100 * e)) : lab.options.lengths.back() / 16;
    lab.report.curves.push_back({kPart, list[i].name, "softmax risk", {}, shortest});
    if (i % 2 == 0) lab.report.curves.push_back({kPart, list[i].name, "linear risk", {}, 0});
  }
  for (size_t l = 0; l < lab.options.lengths.size(); ++l) {
    lab.tell(kPart, fmt::format("L = {}", lab.options.lengths[l]));
    measure_length(lab, l, list, begin);
  }
  population(lab);
  for (size_t i = 0; i < list.size(); i += 2) {
    const Curve& small = lab.report.curve(kPart, list[i].name, "softmax risk");
    const Curve& linear = lab.report.curve(kPart, list[i].name, "linear risk");
    const Curve& end = lab.report.curve(kPart, list[i + 1].name, "softmax risk");
    const auto k = small.exponent(), k_end = end.exponent();
    if (k) lab.claim(kPart, small.name + ": the softmax risk falls like L^-1", *k, -1.1, -0.9);
    if (small.points.back().L >= small.shortest) {
      lab.claim(
          kPart,
          fmt::format(
              "{}: the softmax risk is {:.4g} / L (ratio at L = {})",
              small.name,
              list[i].constant,
              small.points.back().L
          ),
          ratio(small.points.back().measured, *small.points.back().predicted),
          0.9,
          1.1
      );
    }
    lab.claim(
        kPart,
        linear.name + ": linear attention has its exact risk (ratio, all L)",
        linear.pooled(),
        0.9,
        1.1
    );
    if (!k || !k_end) continue;
    const double half = std::hypot(k->high - k->value, k_end->high - k_end->value);
    const double gain = k_end->value - k->value;
    lab.claim(
        kPart,
        fmt::format(
            "{}: where the flow ends the risk falls more slowly than at t = 0.3 (difference of "
            "exponents)",
            end.name
        ),
        {gain, gain - half, gain + half},
        0,
        INFINITY
    );
  }
}

}  // namespace horner::theory
