#include "train/loss.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/device.h"
#include "train/autocast.h"

namespace horner {
namespace {

// The sum of the losses and the gradients of all parameters.
std::vector<at::Tensor> all_of(
    Model& model, at::Device device, bool bf16, bool sum_alone, const TargetBatch& batch
) {
  at::Tensor loss;
  {
    const Autocast precision(device, bf16);
    loss = sum_alone ? loss_sum(model, batch) : losses(model, batch).each.sum();
  }
  std::vector<at::Tensor> all = torch::autograd::grad({loss * 0.5}, model.parameters());
  all.push_back(loss.detach());
  return all;
}

// Language models with their own head and with a tied one, some targets missing; a classifier.
void expect_equal_sums(at::Device device, bool bf16, double bound) {
  at::manual_seed(0);
  std::vector<ModelOptions> models(4);
  models[1].tied = true;
  models[2].logit_cap = 4;
  models[3].classes = 5;
  for (ModelOptions& o : models) {
    o.D = 32;
    o.vocabulary = 61;
    o.layers = 1;
    const auto model = make_model(o, 1);
    model->to(device);
    const at::Tensor tokens = at::randint(61, {4, 18}, at::kLong);
    Batch b;
    b.tokens = tokens.narrow(1, 0, 17).contiguous();
    if (o.classes > 0) {
      b.labels = at::randint(5, {4}, at::kLong);
    } else {
      b.targets = tokens.narrow(1, 1, 17).contiguous();
      b.targets.narrow(1, 3, 2).fill_(kNoTarget);
    }
    const TargetBatch batch = to_device(find_targets(b), device);
    const auto plain = all_of(*model, device, bf16, false, batch),
               own = all_of(*model, device, bf16, true, batch);
    for (size_t i = 0; i < own.size(); ++i) {
      const double error = (own[i] - plain[i]).norm().item<double>();
      EXPECT_LE(error, bound * plain[i].norm().item<double>() + 1e-6)
          << i << " of " << own.size() << ", cap " << o.logit_cap << ", tied " << o.tied;
    }
  }
}

TEST(Loss, SumIsTheSumOfEach) { expect_equal_sums(at::kCPU, false, 1e-6); }

TEST(LossCuda, SumIsTheSumOfEach) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  expect_equal_sums(at::kCUDA, false, 1e-4);
  expect_equal_sums(at::kCUDA, true, 3e-2);
}

}  // namespace
}  // namespace horner
