#include <gtest/gtest.h>

#include "mixers/mixer.h"

namespace horner {
namespace {

// A step dt that nearly vanishes, as training makes it where a token is to be ignored: the skip D u
// has a gradient all the same, which (D/dt) (dt u) loses.
TEST(Skip, HasAGradientWhereTheStepVanishes) {
  for (const char* name : {"s6", "mamba2"}) {
    at::manual_seed(0);
    const auto mixer = make_mixer({name, {}}, 32);
    {
      const c10::NoGradGuard no_graph;
      mixer->named_parameters()["step_bias"].fill_(-60);  // softplus: 9e-27
    }
    State state;
    const at::Tensor y = mixer->forward(at::randn({2, 5, 32}), state, {});
    EXPECT_TRUE(y.isfinite().all().item<bool>()) << name;
    y.square().sum().backward();
    for (const auto& entry : mixer->named_parameters())
      EXPECT_TRUE(entry.value().grad().isfinite().all().item<bool>()) << name << " " << entry.key();
    EXPECT_GT(mixer->named_parameters()["skip"].grad().norm().item<double>(), 0) << name;
  }
}

}  // namespace
}  // namespace horner
