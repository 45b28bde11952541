// InLine attention on a GPU in bf16 by its kernels, whose op reads bf16 where the plain operations under autocast read fp32. The
// output errs at most twice as much, as the contract asks; of gradients 1 % may come on top, from rounding q, k and v once more.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "core/device.h"
#include "mixers/mixer.h"

namespace horner {
namespace {

using Tensors = std::vector<at::Tensor>;

// y, and the gradients of x and of all parameters. The kernels run where no state is wanted.
Tensors evaluate(
    const std::string& settings, at::ScalarType type, const at::Tensor& input, bool kernels
) {
  at::manual_seed(3);
  const MixerType& mixer_type = find_mixer("inline");
  const auto mixer = mixer_type.make(input.size(-1), mixer_type.parse(settings));
  mixer->to(at::Device(at::kCUDA), type);
  Tensors wanted = {input.to(type).detach().requires_grad_(true)};
  for (const auto& p : mixer->parameters()) wanted.push_back(p);
  Context context;
  context.keep_state = !kernels;
  State state;
  const bool bf16 = type == at::kFloat;
  at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCUDA, bf16);
  const at::Tensor y = mixer->forward(wanted[0], state, context);
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  at::autocast::clear_cache();
  const at::Tensor weight = at::linspace(-1, 1, y.numel(), y.options().dtype(at::kDouble)).sin();
  Tensors all = {y.detach()};
  const at::Tensor loss = (y.to(at::kDouble) * weight.view(y.sizes())).sum();
  for (const at::Tensor& g : torch::autograd::grad({loss}, wanted, {}, false, false, true))
    all.push_back(g.defined() ? g : at::zeros({1}, at::kCUDA));
  return all;
}

TEST(InlineMixerCuda, KernelsErrAsThePlainOperations) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const std::string settings :
       {"heads=2", "heads=4,residual=0", "heads=1,residual=4", "heads=2,feature=relu", "heads=8"}) {
    for (const int64_t T : {1, 65, 512}) {
      at::manual_seed(4);
      const at::Tensor x = (at::randn({2, T, 128}, at::kCUDA) + 0.5).to(at::kBFloat16);
      const Tensors exact = evaluate(settings, at::kDouble, x, false),
                    plain = evaluate(settings, at::kFloat, x, false),
                    got = evaluate(settings, at::kFloat, x, true),
                    again = evaluate(settings, at::kFloat, x, true);
      ASSERT_EQ(got.size(), exact.size());
      std::vector<std::string> names = {"y", "x"};
      for (const auto& p :
           find_mixer("inline").make(128, find_mixer("inline").parse(settings))->named_parameters())
        names.push_back(p.key());
      for (size_t i = 0; i < exact.size(); ++i) {
        const auto error = [&](const Tensors& y) {
          return (y[i].to(at::kDouble) - exact[i]).norm().item<double>();
        };
        // Moving all keys changes nothing, so the bias of k has no gradient, only the rounding of each dk: the norm of all dk
        // is that of the gradient of k's matrix over sqrt(D).
        const bool only_rounding = names[i] == "k_bias";
        const auto matrix = std::find(names.begin(), names.end(), "k_weight") - names.begin();
        const double size = only_rounding
                                ? exact[size_t(matrix)].norm().item<double>() / std::sqrt(128.)
                                : exact[i].norm().item<double>();
        EXPECT_LE(error(got), 2 * error(plain) + (i == 0 ? 1e-3 : 1e-2) * size + 1e-6)
            << settings << ", T " << T << ", " << names[i];
        EXPECT_TRUE(got[i].equal(again[i])) << settings << ", T " << T << ", " << names[i];
      }
    }
  }
}

}  // namespace
}  // namespace horner
