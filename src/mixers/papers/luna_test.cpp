// LUNA (arXiv:2512.08061) and the random features that it is measured against (arXiv:2009.14794).
#include "mixers/papers/worked.h"
#include "nn/features/features.h"

namespace horner::worked {
namespace {

// The worked map: K = 2, M = 2, R = 2, E = 2.
at::Tensor worked_luna(const std::string& options) {
  const auto m = mixer(
      "luna", 4, "heads=2,map.projections=2,map.channels=2,map.hidden=2,map.shared=true," + options
  );
  set(*m,
      {{"map_w", rows({1, 0, 1, -1})},
       {"map_b", vec({0., .5})},
       {"map_fc1", rows({1, -1})},
       {"map_bias1", rows({0, 1})},
       {"map_fc2", rows({1, .5, -1, 2})},
       {"map_bias2", vec({.1, -.5})},
       {"q_weight", doubled(rows({0, 1, 1, 0, 1, 1, 0, 0}))},
       {"k_weight", doubled(rows({1, 0, 0, 1, -1, 1, 0, 0}))},
       {"v_weight", doubled(rows({1, 0, 0, 1, 2, -1, 0, 0}))},
       {"out_weight", at::eye(4, at::kDouble)}});
  return forward(*m, four_tokens.narrow(1, 0, 3)).squeeze(0).narrow(1, 0, 2);
}

TEST(Luna, WorkedExample) {
  expect_rows(
      worked_luna("causal=true"), {1, 0, 0.651122625, 0.348877375, 1.154516640, -0.154516640}
  );
  expect_rows(
      worked_luna("causal=false"),
      {1.291708459, -0.291708459, 1.147379913, -0.147379913, 1.154516640, -0.154516640}
  );
}

TEST(Luna, KernelIsPositiveDefinite) {
  const auto m = mixer("luna", 16, "");
  const c10::NoGradGuard no_graph;
  const auto core = m->core(at::randn({1, 30, 16}, at::kDouble) * 3);
  const at::Tensor phi = core.in.k.squeeze(0).select(1, 0);
  const at::Tensor gram = at::matmul(phi, phi.t());
  EXPECT_GE(at::linalg_eigvalsh(gram).min().item<double>(), -1e-12);
  EXPECT_GE(gram.min().item<double>(), 0);
}

// Weights are >= 0 and sum to 1, so that an output lies between the values it reads; equal values
// come back.
TEST(Luna, OutputsAreMeansOfValues) {
  const auto m = mixer("luna", 16, "");
  set(*m, {{"out_weight", at::eye(16, at::kDouble)}});
  const at::Tensor x = at::randn({1, 30, 16}, at::kDouble);
  const c10::NoGradGuard no_graph;
  const at::Tensor map = m->map(x);
  EXPECT_GE(map.min().item<double>(), 0);
  EXPECT_LT((map.sum(-1) - 1).abs().max().item<double>(), 1e-12);
  const Core core = m->core(x);
  const at::Tensor o = core.o, values = core.in.v;  // (1,T,H,V)
  const at::Tensor high = std::get<0>(values.cummax(1)), low = -std::get<0>((-values).cummax(1));
  EXPECT_LE((o - high).max().item<double>(), 1e-12);
  EXPECT_GE((o - low).min().item<double>(), -1e-12);
  Core same = core;
  same.in.v = at::full_like(core.in.v, 3);
  const at::Tensor read = at::einsum("bhts,bshv->bthv", {map_of(same), same.in.v});
  EXPECT_LT((read - 3).abs().max().item<double>(), 1e-12);
}

// A factor of all features cancels; so does the order of the tokens, where both directions are read.
TEST(Luna, Invariances) {
  const at::Tensor x = at::randn({1, 12, 16}, at::kDouble);
  const auto m = mixer("luna", 16, "causal=false,map.channels=8");
  const at::Tensor y = forward(*m, x), order = at::randperm(12);
  const at::Tensor shuffled = forward(*m, x.index_select(1, order));
  EXPECT_LT(relative_error(shuffled, y.index_select(1, order)), 1e-12);
  const auto weights = m->named_parameters();
  set(*m, {{"map_fc2", 7 * weights["map_fc2"]}, {"map_bias2", 7 * weights["map_bias2"]}});
  EXPECT_LT(relative_error(forward(*m, x), y), 1e-12);
}

// One random feature of FAVOR+ or of RFF, as an estimate of SM = e^{x'.y'}: no bias, and
//   FAVOR+  Var = SM^2 (e^{|x'+y'|^2} - 1)      RFF  Var = SM^2 e^{d} (1 - e^{-d})^2 / 2, d = |x'-y'|^2
TEST(Luna, VarianceOfRandomFeatures) {
  constexpr int64_t K = 4, M = 80000;
  at::manual_seed(5);
  const at::Tensor w = orthogonal_rows(M, K);  // each row for itself is N(0, I)
  const at::Tensor x = vec({.3, -.2, .1, .4}), y = vec({.2, .3, -.4, .1});  // x', y'
  const double SM = std::exp(x.dot(y).item<double>());
  const auto size = [](const at::Tensor& z) { return z.square().sum().item<double>(); };
  const double both = size(x) + size(y), sum = size(x + y), d = size(x - y);
  const at::Tensor favor = (at::matmul(w, x + y) - both / 2).exp();
  const at::Tensor fourier = at::matmul(w, x - y).cos() * std::exp(both / 2);
  EXPECT_NEAR(favor.mean().item<double>(), SM, 0.015 * SM);
  EXPECT_NEAR(fourier.mean().item<double>(), SM, 0.015 * SM);
  const double expected = SM * SM * (std::exp(sum) - 1);
  EXPECT_NEAR(favor.var().item<double>(), expected, 0.05 * expected);
  const double wave = SM * SM * std::exp(d) * std::pow(1 - std::exp(-d), 2) / 2;
  EXPECT_NEAR(fourier.var().item<double>(), wave, 0.05 * wave);
  // K directions at right angles err less than K that are drawn alone.
  const double blocks = favor.view({M / K, K}).mean(1).var().item<double>();
  EXPECT_LT(blocks, 0.97 * expected / K);
}

// The layer's favor is that feature: phi(q).phi(k), less the 1e-4 and up to one factor per query.
TEST(Luna, FavorFeaturesAreThose) {
  const auto m = mixer("linear", 16, "feature=favor,feature_dim=6");
  const at::Tensor w = m->buffers()[0];  // (M,K)
  const at::Tensor x = at::randn({1, 5, 16}, at::kDouble);
  const c10::NoGradGuard no_graph;
  const auto scaled = [&](const char* weight) {  // x'
    const at::Tensor y = at::linear(x, m->named_parameters()[weight]);
    return y.unflatten(-1, {4, 4}) / std::pow(4.0, 0.25);
  };
  const auto exponent = [&](const at::Tensor& y) {
    return at::matmul(y, w.t()) - y.square().sum(-1, true) / 2;
  };
  const Core core = m->core(x);
  const at::Tensor keys = exponent(scaled("k_weight")), queries = exponent(scaled("q_weight"));
  EXPECT_LT(furthest(core.in.k, keys.exp() / std::sqrt(6.0) + 1e-4), 1e-14);
  const at::Tensor less = (queries - queries.amax(-1, true)).exp();
  EXPECT_LT(furthest(core.in.q, less / std::sqrt(6.0) + 1e-4), 1e-14);
}

}  // namespace
}  // namespace horner::worked
