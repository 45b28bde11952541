// Heads that expand made from one are read where they are.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/device.h"
#include "ops/op.h"

namespace horner {
namespace {

TEST(LinearCuda, ReadsExpandedHeads) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  at::manual_seed(0);
  const auto bf16 = at::device(at::kCUDA).dtype(at::kBFloat16);
  for (const int64_t T : {1, 2, 64, 200, 1024}) {
    const at::Tensor q = at::randn({2, T, 1, 64}, bf16), k = at::randn({2, T, 1, 64}, bf16);
    const at::Tensor v = at::randn({2, T, 8, 64}, bf16), dy = at::randn({2, T, 8, 64}, bf16);
    const at::Tensor g = -at::rand({2, T, 8}, bf16.dtype(at::kFloat));
    const auto evaluate = [&](bool copies) {
      std::vector<at::Tensor> leaves;
      for (const at::Tensor& x : {q, k, v, g})
        leaves.push_back(x.detach().clone().requires_grad_(true));
      const auto heads = [&](const at::Tensor& x) {
        const at::Tensor all = x.expand({-1, -1, 8, -1});
        return copies ? all.clone(at::MemoryFormat::Contiguous) : all;
      };
      Inputs in;
      in.q = heads(leaves[0]);
      in.k = heads(leaves[1]);
      in.v = leaves[2];
      in.g = leaves[3];
      const at::Tensor o = run(find_op("linear"), in, {}, {}).o;
      std::vector<at::Tensor> all = torch::autograd::grad({o}, leaves, {dy});
      all.push_back(o);
      return all;
    };
    const auto own = evaluate(false), copied = evaluate(true);
    for (size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(own[i].equal(copied[i])) << T << " " << i;
  }
}

}  // namespace
}  // namespace horner
