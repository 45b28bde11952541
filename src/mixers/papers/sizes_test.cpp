// What the papers say of sizes: parameters, states, eigenvalues.
#include "mixers/papers/worked.h"

namespace horner::worked {
namespace {

// Eigenvalues of DeltaNet's transition: in [0,1], or down to -1 where beta reaches 2
// (arXiv:2411.12537).
TEST(PaperSizes, DeltaNetEigenvalues) {
  const at::Tensor x = at::randn({1, 20, 16}, at::kDouble) * 100;
  for (const bool negative : {false, true}) {
    const auto m = mixer("deltanet", 16, fmt::format("negative={}", negative));
    const c10::NoGradGuard no_graph;
    const at::Tensor e = at::linalg_eigvalsh(m->dsf(x).Lambda);
    EXPECT_LE(e.max().item<double>(), 1 + 1e-12);
    EXPECT_EQ(e.min().item<double>() < -0.5, negative);
  }
}

int64_t count(std::string_view name, const std::string& options, int64_t D) {
  int64_t n = 0;
  for (const at::Tensor& p :
       make_mixer({std::string(name), parse_settings(options)}, D)->parameters())
    n += p.numel();
  return n;
}

TEST(PaperSizes, Parameters) {
  const int64_t D = 64;
  EXPECT_EQ(count("softmax", "", D), 4 * D * D);
  EXPECT_EQ(count("metala", "", D), 4 * D * D + 4 * D + D + D / 2);
  EXPECT_EQ(count("luna", "heads=1", D), 4 * D * D + 1812);  // M 16, R 4, E 64, K 64
  EXPECT_EQ(count("luna", "heads=1,map.shared=true", D), 4 * D * D + 1428);
  EXPECT_EQ(count("retnet", "", D), 8 * D * D);
  // Four projections, two of rank V = D / 4, beta, convolutions, A_log, two biases, norm.
  EXPECT_EQ(count("kda", "", D), 4 * D * D + D * D + 4 * D + 12 * D + 4 + 2 * D + D / 4);
  EXPECT_EQ(count("mlstm", "", D), 4 * D * D + 2 * (4 * D + 4) + D);
  EXPECT_EQ(count("inline", "heads=2,residual=9", D), 4 * D * D + 4 * D + 10 * D * 32 + 10 * D);
  EXPECT_EQ(count("conv", "", D), D * D + 5 * D);
}

// State bytes in fp32, measured, at D = 64: constant in T but for softmax.
TEST(PaperSizes, StateBytes) {
  const auto bytes = [](std::string_view name, const std::string& options, int64_t T) {
    const auto m = make_mixer({std::string(name), parse_settings(options)}, 64);
    State state;
    const c10::NoGradGuard no_graph;
    m->forward(at::randn({1, T, 64}), state);
    return state.bytes();
  };
  EXPECT_EQ(bytes("metala", "", 40), 4 * (64 * 64 / (2 * 4) + 3 * 64));
  EXPECT_EQ(bytes("mlstm", "", 40), 4 * 4 * (8 * 16 + 8 + 1));
  EXPECT_EQ(bytes("retnet", "position.kind=none", 40), 4 * 4 * 16 * 32);
  EXPECT_EQ(bytes("softmax", "position.kind=none", 40), 4 * 2 * 40 * 64 + 4 * 8);
  EXPECT_EQ(bytes("conv", "", 40), 4 * 2 * 64);
  for (const MixerType& type : mixers()) {
    if (type.name == "softmax" || type.name == "window" || type.name == "mamba2") continue;
    EXPECT_EQ(bytes(type.name, "", 5), bytes(type.name, "", 50)) << type.name;
  }
}

}  // namespace
}  // namespace horner::worked
