#include "tasks/recall/on_gpu.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/device.h"

namespace horner {
namespace {

class RecallCuda : public testing::TestWithParam<const char*> {};

TEST_P(RecallCuda, MakesTheNumbersOfTheCpu) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const at::Device gpu(at::kCUDA, 0);
  const auto task = make_task(GetParam());
  const std::vector<int64_t> sizes = task->segments(Split::train);
  int64_t start = 0;
  for (const int64_t size : sizes) {
    // The last indices of a segment too; an endless one also beyond 2^32.
    std::vector<int64_t> indices(std::min<int64_t>(size, 300));
    std::iota(indices.begin(), indices.end(), start);
    if (size == kEndless) indices.back() = (int64_t{1} << 32) + 12345;
    const Batch want = task->batch(Split::train, indices);
    const Task::OnGpu made_there = task->on_gpu(Split::train, indices[0]);
    ASSERT_TRUE(made_there.make);
    const GpuBatch got = made_there.make(at::tensor(indices, at::kLong).to(gpu));
    EXPECT_EQ(made_there.T, want.tokens.size(1));
    EXPECT_TRUE(at::equal(got.tokens.to(at::kCPU), want.tokens));
    const at::Tensor flat = want.targets.flatten();
    const at::Tensor places = (flat != kNoTarget).nonzero().squeeze(1);
    ASSERT_EQ(places.size(0), made_there.targets * int64_t(indices.size()));
    EXPECT_TRUE(at::equal(got.places.to(at::kCPU), places));
    EXPECT_TRUE(at::equal(got.answers.to(at::kCPU), flat.index_select(0, places)));
    start += size == kEndless ? 0 : size;
  }
}
INSTANTIATE_TEST_SUITE_P(
    Tasks,
    RecallCuda,
    testing::Values(
        "mqar",
        "mqar:T=64,pairs=16,vocabulary=128,noise=true",
        "mqar:T=512,pairs=64,vocabulary=8192,seed=7",
        "mqar:T=64;128,pairs=4;8,train=40;30,vocabulary=256",
        "mqar:power=1",
        "mqar_comp",
        "mqar_comp:T=256,pairs=25,vocabulary=300",
        "mqar_forget",
        "mqar_forget:T=256,pairs=20,rewrites=20,vocabulary=300"
    )
);

}  // namespace
}  // namespace horner
