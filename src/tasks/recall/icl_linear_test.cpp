// Regression in context: the layout, the curriculum, the shifts and what least squares leaves.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <map>

#include "core/check.h"
#include "tasks/rows_test.h"

namespace horner {
namespace {

TEST(IclLinear, Layout) {
  const auto task = make_task("icl_linear:d=3,n=5,stage=0");
  const Batch batch = task->batch(Split::train, first(8));
  const at::Tensor pairs = batch.features.view({8, 5, 2, 3}), y = pairs.select(2, 1);
  EXPECT_TRUE(at::equal(batch.values.slice(1, 0, 10, 2), y.select(2, 0)));
  EXPECT_TRUE(batch.values.slice(1, 1, 10, 2).isnan().all().item<bool>());
  EXPECT_EQ(y.narrow(2, 1, 2).count_nonzero().item<int64_t>(), 0);
  // Three points give w, the others follow.
  const at::Tensor X = pairs.select(2, 0).to(at::kDouble);
  const at::Tensor Y = y.narrow(2, 0, 1).to(at::kDouble);
  const at::Tensor w = at::linalg_solve(X.narrow(1, 0, 3), Y.narrow(1, 0, 3));
  EXPECT_LT((X.matmul(w) - Y).abs().max().item<double>(), 1e-3);
}

// What minimum-norm least squares leaves after i examples is max(d - i, 0).
TEST(IclLinear, LeastSquaresLeavesWhatItMust) {
  const auto task = make_task("icl_linear:d=8,n=16,stage=0");
  const double left = 36.0 / 16;  // mean_i max(8 - i, 0)
  std::map<std::string, double> score;
  for (const Baseline& baseline : task->baselines()) score[baseline.name] = baseline.score;
  EXPECT_NEAR(score.at("least squares"), left, 0.5);
  EXPECT_NEAR(score.at("zero"), 8, 1.5);
  EXPECT_LT(score.at("12 gradient steps"), 0.7 * score.at("zero"));
  EXPECT_GT(score.at("12 gradient steps"), score.at("least squares"));
  EXPECT_GT(score.at("3 nearest"), score.at("ridge"));
}

TEST(IclLinear, CurriculumFollowsFromTheIndex) {
  const auto task = make_task("icl_linear");
  for (const int64_t stage : {0, 1, 7, 15, 40}) {
    const Batch batch = task->batch(Split::train, {stage * 128000, stage * 128000 + 127999});
    const int64_t n = std::min<int64_t>(41, 11 + 2 * stage);
    EXPECT_EQ(numbers(batch.lengths), (std::vector<int64_t>{2 * n, 2 * n}));
    EXPECT_EQ(batch.values.isnan().logical_not().sum().item<int64_t>(), 2 * n);
    const at::Tensor used = batch.features.abs().flatten(0, 1).sum(0);  // (d)
    EXPECT_EQ(used.count_nonzero().item<int64_t>(), std::min<int64_t>(20, 5 + stage));
  }
  EXPECT_EQ(task->batch(Split::test, {0}).lengths.item<int64_t>(), 82);
}

TEST(IclLinear, Shifts) {
  const auto x = [](const std::string& shift, int64_t n) {  // (B,n,d)
    const auto task = make_task(fmt::format("icl_linear:d=6,n={},stage=0,shift={}", n, shift));
    const Batch batch = task->batch(Split::test, first(500));
    return batch.features.view({500, n, 2, 6}).select(2, 0).to(at::kDouble);
  };
  for (const char* shift : {"none", "skewed", "half"}) {
    EXPECT_NEAR(x(shift, 12).square().sum(2).mean().item<double>(), 6, 0.4) << shift;  // trace d
  }
  const at::Tensor singular = at::linalg_svdvals(x("half", 12));  // (B,d)
  EXPECT_GT(singular.select(1, 2).min().item<double>(), 0.1);
  EXPECT_LT(singular.select(1, 3).max().item<double>(), 1e-5);
  const at::Tensor orthogonal = x("orthogonal", 6);
  const at::Tensor products =
      orthogonal.narrow(1, 0, 5).matmul(orthogonal.select(1, 5).unsqueeze(2));
  EXPECT_LT(products.abs().max().item<double>(), 1e-5);
  const at::Tensor opposite = x("opposite", 8);
  EXPECT_TRUE((opposite.select(1, 0).sign() == -opposite.select(1, 7).sign()).all().item<bool>());
  EXPECT_TRUE((opposite.select(1, 0).sign() == opposite.select(1, 6).sign()).all().item<bool>());
  const Batch last = make_task("icl_linear:shift=opposite")->batch(Split::test, {0});
  EXPECT_EQ(last.values.isnan().logical_not().sum().item<int64_t>(), 1);
}

}  // namespace
}  // namespace horner
