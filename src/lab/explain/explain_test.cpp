#include "lab/explain/explain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "mixers/mixer.h"

namespace horner {
namespace {

TEST(Explain, EveryMixer) {
  for (const MixerType& type : mixers()) {
    ExplainOptions o;
    o.T = 12;
    const std::string spec = fmt::format("{}:{}", type.name, type.variants[0]);
    const Explanation e = explain(spec, o);
    EXPECT_GT(e.parameter_count, 0) << type.name;
    EXPECT_EQ(e.map.size(), 144u) << type.name;
    EXPECT_EQ(e.transition.size(), 5u) << type.name;
    EXPECT_EQ(Json::parse(e.json().dump())["mixer"], MixerSpec::parse(spec).text());
  }
}

TEST(Explain, StateAgainstCache) {
  const Explanation e = explain("metala", {});
  ASSERT_EQ(e.sizes.size(), 5u);
  EXPECT_EQ(e.sizes[0].bytes, e.sizes[4].bytes);
  EXPECT_LE(e.sizes[0].bytes, e.crossover * 2 * 64 * 4);
  EXPECT_GT(e.sizes[0].bytes, (e.crossover - 1) * 2 * 64 * 4 - 1);
  EXPECT_EQ(explain("softmax", {}).crossover, 0);
}

TEST(Explain, RangeOfEigenvalues) {
  EXPECT_NE(explain("deltanet", {}).consequence.find("cannot do parity"), std::string::npos);
  EXPECT_LT(explain("deltanet:negative=true", {}).transition[0], 0);
  const Explanation retnet = explain("retnet:position.kind=none", {});  // 1 - 2^-5 .. 1 - 2^-8
  EXPECT_NEAR(retnet.transition[0], 1 - 1.0 / 32, 1e-6);
  EXPECT_NEAR(retnet.transition[4], 1 - 1.0 / 256, 1e-6);
}

TEST(Explain, OrdersAndRows) {
  const Explanation e = explain("softmax", {});
  EXPECT_NEAR(std::accumulate(e.orders.begin(), e.orders.end(), 0.0), 1, 1e-12);
  EXPECT_NEAR(e.row_sum_low, 1, 1e-12);
  EXPECT_NEAR(e.row_sum_high, 1, 1e-12);
  EXPECT_EQ(e.negative_mass, 0);
  EXPECT_GT(explain("norm_attention", {}).negative_mass, 0.1);
}

// Prop. 1 and 2 of arXiv:2412.06590: what divides by a sum loses the length of a query, softmax and
// InLine do not.
TEST(Explain, Confusion) {
  EXPECT_LT(explain("linear:feature=relu", {}).confusion.doubled, 1e-12);
  EXPECT_TRUE(std::isnan(explain("mamba2", {}).confusion.doubled));  // no projection of its own
  for (const char* name : {"softmax", "inline"}) {
    const Confusion c = explain(name, {}).confusion;
    EXPECT_GT(c.doubled, 1e-3) << name;
    for (const Confusion::Head& head : c.heads) EXPECT_EQ(head.pairs, 0) << name;
  }
  // Every pair of queries that are multiples of each other is confused: relu in one dimension.
  ExplainOptions o;
  o.D = 4;
  const Confusion c = explain("linear:heads=4,feature=relu", o).confusion;
  ASSERT_EQ(c.heads.size(), 4u);
  EXPECT_GT(c.heads[0].pairs, 0.2);
  EXPECT_TRUE(explain("rg_lru", {}).confusion.heads.empty());
}

// InLine's weights are w = qh.(k - mean k) + 1/n: of 2 q they are 2 w - 1/n, in both directions and at the end.
TEST(Explain, ConfusionFollowsTheQueryOfInLine) {
  for (const char* name : {"inline:causal=false,residual=0", "inline:residual=0"}) {
    at::manual_seed(3);
    const auto mixer = make_mixer(MixerSpec::parse(name), 16);
    const c10::NoGradGuard no_graph;
    mixer->to(at::kDouble);
    const at::Tensor x = at::randn({1, 24, 16}, at::kDouble);
    const at::Tensor w = mixer->map(x)[0];  // (H,T,T)
    const bool causal = mixer->causal();
    const at::Tensor n =
        causal ? at::arange(1, 25, at::kDouble).view({24, 1}) : at::full({1}, 24.0, at::kDouble);
    at::Tensor change = (w - 1 / n);
    if (causal) change = change.tril();
    const at::Tensor share = change.norm(2, -1) / w.norm(2, -1);
    const double measured = confusion(*mixer, x).doubled;
    if (!causal) EXPECT_NEAR(measured, share.mean().item<double>(), 1e-9);
    EXPECT_GT(measured, 0);
    EXPECT_LT(measured, 0.9);  // 1 if the whole row were doubled
  }
}

TEST(Explain, HalfLife) {
  EXPECT_DOUBLE_EQ(half_life(0.5), 1);
  EXPECT_NEAR(half_life(std::exp2(-1.0 / 8)), 8, 1e-12);
  EXPECT_EQ(half_life(-0.5), 0);
  EXPECT_TRUE(std::isinf(half_life(1)));
}

}  // namespace
}  // namespace horner
