// Where a mixer's output is finite, so are its gradients: at zero, at tiny and at large inputs, and with each parameter moved far.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "mixers/mixer.h"
#include "mixers/norm_attention.h"

namespace horner {
namespace {

constexpr int64_t kWidth = 16;

// Names of what has no finite gradient although the loss is finite.
std::string broken_gradients(Mixer& mixer, const at::Tensor& input) {
  const at::Tensor x = input.clone().set_requires_grad(true);
  State state;
  const at::Tensor y = mixer.forward(x, state, {});
  const at::Tensor loss = (y * at::linspace(-1, 1, y.numel()).view(y.sizes())).sum();
  if (!(loss.abs().item<double>() < 1e30)) return "";
  std::vector<at::Tensor> wanted = {x};
  std::vector<std::string> names = {"x"};
  for (const auto& p : mixer.named_parameters()) {
    wanted.push_back(p.value());
    names.push_back(p.key());
  }
  const auto gradients = torch::autograd::grad({loss}, wanted, {}, false, false, true);
  std::string broken;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined() && gradients[i].isnan().any().item<bool>()) broken += names[i] + " ";
  }
  return broken;
}

TEST(MixerFinite, GradientsAreFiniteWhereTheLossIs) {
  for (const MixerType& type : mixers()) {
    for (const std::string& variant : type.variants) {
      at::manual_seed(1);
      const auto mixer = type.make(kWidth, type.parse(variant));
      const at::Tensor x = at::randn({1, 3, kWidth});
      for (const double size : {0.0, 1e-30, 1e3})
        EXPECT_EQ(broken_gradients(*mixer, size * x), "")
            << type.name << ":" << variant << " " << size;
      for (const auto& p : mixer->named_parameters()) {
        if (p.key().ends_with("_weight") && !p.key().starts_with("eta"))
          continue;  // gates and rates
        const at::Tensor before = p.value().detach().clone();
        for (const double shift : {-200.0, 95.0}) {
          {
            const c10::NoGradGuard no_graph;
            p.value().copy_(before + shift);
          }
          EXPECT_EQ(broken_gradients(*mixer, x), "")
              << type.name << ":" << variant << " " << p.key() << " " << shift;
        }
        const c10::NoGradGuard no_graph;
        p.value().copy_(before);
      }
    }
  }
}

// RG-LRU at a = 1: h_1 = i_1 u_1 stays, no later token is written, and Lambda has no influence.
TEST(MixerFinite, RgLruThatForgetsNothing) {
  at::manual_seed(1);
  const MixerType& type = find_mixer("rg_lru");
  const auto mixer = type.make(kWidth, type.parse("conv=0"));
  at::Tensor Lambda = mixer->named_parameters()["Lambda"];
  {
    const c10::NoGradGuard no_graph;
    Lambda.fill_(-200);  // softplus is 0
  }
  const at::Tensor x = at::randn({1, 4, kWidth}).set_requires_grad(true);
  State state;
  const at::Tensor y = mixer->forward(x, state, {});
  const auto gradients = torch::autograd::grad({y.sum()}, {Lambda, x});
  EXPECT_EQ(gradients[0].abs().max().item<double>(), 0);
  EXPECT_TRUE(gradients[1].isfinite().all().item<bool>());
  at::Tensor changed = x.detach().clone();
  const State first = state;
  changed.narrow(1, 1, 3).add_(1);  // the state is h_1, whatever comes later
  State after;
  mixer->forward(changed, after, {});
  EXPECT_TRUE(at::equal(state.parts.back(), after.parts.back()));
}

// o / eta with eta = e^nu at nu = 95, which fp32 cannot hold: the output is 0 and so is every gradient.
TEST(MixerFinite, NormAttentionDividedByInfinity) {
  const at::Tensor nu = at::tensor({2.f, 95.f, 200.f}).set_requires_grad(true);
  const at::Tensor o = at::tensor({3.f, 3.f, 3.f});
  for (const char* kind : {"exp", "exp_exp", "exp_elu", "exp_softplus"}) {
    const at::Tensor y = o / normaliser(kind, nu);
    const at::Tensor d = torch::autograd::grad({y.sum()}, {nu})[0];
    EXPECT_EQ(d[1].item<float>(), 0) << kind;
    EXPECT_EQ(d[2].item<float>(), 0) << kind;
    EXPECT_LT(y[2].item<float>(), 1e-25) << kind;
    if (std::string_view(kind) == "exp") EXPECT_NEAR(d[0].item<float>(), -3 * std::exp(-2.0), 1e-6);
  }
}

}  // namespace
}  // namespace horner
