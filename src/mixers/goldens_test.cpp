// Every mixer against other hands: transformers' layers, flash-linear-attention's naive functions
// and the papers' equations (tools/mixer_goldens.py).
#include <gtest/gtest.h>

#include <set>

#include "io/safetensors.h"
#include "mixers/contract.h"

namespace horner {
namespace {

// Gives the mixer the file's weights; every parameter must be there, and nothing else.
void load(Mixer& mixer, const Safetensors& file, const std::string& name) {
  const c10::NoGradGuard no_graph;
  std::set<std::string> left;
  for (const std::string& key : file.names()) {
    if (key.starts_with(name + ".")) left.insert(key.substr(name.size() + 1));
  }
  left.erase("x");
  left.erase("y");
  for (auto& parameter : mixer.named_parameters()) {
    ASSERT_EQ(left.erase(parameter.key()), 1u) << name << " lacks " << parameter.key();
    const at::Tensor value = file.get(name + "." + parameter.key());
    ASSERT_EQ(parameter.value().sizes(), value.sizes()) << name << " " << parameter.key();
    parameter.value().copy_(value);
  }
  EXPECT_TRUE(left.empty()) << name << " has no " << *left.begin();
}

void expect_goldens(const std::string& path, size_t cases) {
  const Safetensors file = Safetensors::open(path);
  EXPECT_EQ(file.metadata().size(), cases);
  for (const auto& [name, text] : file.metadata()) {
    const Json about = Json::parse(text);
    const auto mixer =
        find_mixer(about["mixer"].get<std::string>()).make(about["D"], about["options"]);
    mixer->to(at::kDouble);
    load(*mixer, file, name);
    const c10::NoGradGuard no_graph;
    State state;
    const at::Tensor y = mixer->forward(file.get(name + ".x").to(at::kDouble), state);
    EXPECT_LT(relative_error(y, file.get(name + ".y")), about["tolerance"].get<double>()) << name;
  }
}

TEST(MixerGoldens, Equations) { expect_goldens("src/mixers/goldens/equations.safetensors", 40); }
TEST(MixerGoldens, Transformers) {
  expect_goldens("src/mixers/goldens/transformers.safetensors", 8);
}
TEST(MixerGoldens, FlashLinearAttention) {
  expect_goldens("src/mixers/goldens/fla.safetensors", 4);
}

}  // namespace
}  // namespace horner
