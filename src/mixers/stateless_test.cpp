// A mixer around lent tensors is the mixer that owns them, for every mixer and variant on the list.
#include "mixers/stateless.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "core/check.h"
#include "core/initial.h"
#include "core/thrown_test.h"
#include "ops/contract.h"

namespace horner {
namespace {

constexpr int64_t kWidth = 16;
constexpr uint64_t kSeed = 7;

std::vector<std::string> all_specs() {
  std::vector<std::string> list;
  for (const MixerType& type : mixers()) {
    for (const std::string& settings : type.variants)
      list.push_back(std::string(type.name) + (settings.empty() ? "" : ":" + settings));
  }
  return list;
}

std::shared_ptr<Mixer> owner(const std::string& spec) {
  const Initial all(kSeed);
  return make_mixer(TypeSpec::parse(spec), kWidth);
}

TEST(Stateless, SameNumbersAsTheOwner) {
  const c10::NoGradGuard no_graph;
  for (const std::string& spec : all_specs()) {
    const auto own = owner(spec);
    own->to(at::kDouble);
    std::vector<at::Tensor> tensors = initial_tensors(spec, kWidth, kSeed);
    for (at::Tensor& tensor : tensors) tensor = tensor.to(at::kDouble);
    at::manual_seed(7);
    const at::Tensor x = at::randn({2, 9, kWidth}, at::kDouble);
    const int64_t half = own->causal() ? 4 : 9;
    State state, lent_state;
    for (int64_t from = 0; from < 9; from += half) {
      const at::Tensor piece = x.narrow(1, from, std::min(half, 9 - from));
      const at::Tensor expected = own->forward(piece, state);
      const at::Tensor y = mixer_of(spec, kWidth, tensors)->forward(piece, lent_state);
      // Not bits: the sums of a product depend on where the weights lie in memory.
      EXPECT_LT(relative_error(y, expected), 1e-9) << spec;
    }
    ASSERT_EQ(state.parts.size(), lent_state.parts.size()) << spec;
    for (size_t i = 0; i < state.parts.size(); ++i)
      EXPECT_LT(relative_error(lent_state.parts[i], state.parts[i]), 1e-9) << spec << " part " << i;
  }
}

TEST(Stateless, TheLayoutHasEveryTensorUnderItsName) {
  for (const std::string& spec : all_specs()) {
    const auto own = owner(spec);
    const Layout& layout = mixer_layout(spec, kWidth).tensors;
    const auto parameters = own->named_parameters(), buffers = own->named_buffers();
    EXPECT_EQ(layout.size(), parameters.size() + buffers.size()) << spec;
    const std::vector<at::Tensor> tensors = initial_tensors(spec, kWidth, kSeed);
    for (size_t i = 0; i < layout.size(); ++i) {
      const auto& [name, sizes, type, trained] = layout[i];
      const at::Tensor& x = trained ? parameters[name] : buffers[name];
      EXPECT_EQ(x.sizes(), at::IntArrayRef(sizes)) << spec << " " << name;
      EXPECT_EQ(x.scalar_type(), type) << spec << " " << name;
      EXPECT_TRUE(at::equal(x, tensors[i])) << spec << " " << name;
    }
  }
}

TEST(Stateless, GradientsReachTheLentTensors) {
  std::vector<at::Tensor> tensors = initial_tensors("gla:heads=2", kWidth, kSeed);
  for (at::Tensor& x : tensors) x.requires_grad_();
  State state;
  mixer_of("gla:heads=2", kWidth, tensors)
      ->forward(at::randn({1, 5, kWidth}), state)
      .sum()
      .backward();
  for (const at::Tensor& x : tensors) EXPECT_TRUE(x.grad().defined());
}

TEST(Stateless, WrongTensorsAreRefused) {
  std::vector<at::Tensor> tensors = initial_tensors("gla:heads=2", kWidth, kSeed);
  tensors[0] = tensors[0].t();
  EXPECT_EQ(
      thrown<UsageError>([&] { mixer_of("gla:heads=2", kWidth, tensors); }),
      "[gla] q_weight must be (8,16), got (16,8)"
  );
  tensors.pop_back();
  EXPECT_EQ(
      thrown<UsageError>([&] { mixer_of("gla:heads=2", kWidth, tensors); }),
      "[gla] has 10 tensors, got 9"
  );
}

// state_bytes runs a mixer without memory.
TEST(Stateless, StateBytesAreThoseOfARealForward) {
  const c10::NoGradGuard no_graph;
  for (const MixerType& type : mixers()) {
    for (const std::string& settings : type.variants) {
      const Json options = type.parse(settings);
      const auto own = type.make(kWidth, options);
      if (!own->causal()) continue;
      for (const int64_t T : {1, 2, 9}) {
        State state;
        own->forward(at::zeros({1, T, kWidth}), state);
        EXPECT_EQ(state_bytes(type, kWidth, T, options), state.bytes()) << type.name << settings;
      }
    }
  }
}

TEST(Stateless, EveryMixerSaysWhenToUseIt) {
  for (const MixerType& type : mixers()) EXPECT_GT(type.use.size(), 30u) << type.name;
}

}  // namespace
}  // namespace horner
