#include "model/size.h"

#include <gtest/gtest.h>

#include "core/check.h"

namespace horner {
namespace {

TEST(ModelSize, IsThatOfTheModel) {
  ModelOptions o;
  o.D = 16;
  o.layers = 1;
  for (const MixerType& type : mixers()) {
    for (const std::string& variant : type.variants) {
      const std::string spec(type.name);
      o.pattern = {variant.empty() ? spec : spec + ":" + variant};
      EXPECT_EQ(parameters_of(o), double(make_model(o, 0)->parameters_count())) << o.pattern[0];
    }
  }
  o.pattern = {"softmax", "linear", "rg_lru"};
  o.positions = 5;
  for (o.layers = 3; o.layers <= 8; ++o.layers) {
    for (const bool tied : {false, true}) {
      o.tied = tied;
      EXPECT_EQ(parameters_of(o), double(make_model(o, 0)->parameters_count())) << o.layers;
    }
  }
}

TEST(ModelSize, NothingIsBuilt) {
  ModelOptions o;
  o.pattern = {"gla"};
  o.layers = kMostLayers;
  o.D = kMostWidth / 4;  // 17 PiB
  EXPECT_GT(parameters_of(o), 1e16);
}

TEST(ModelSize, LimitsAreNamed) {
  ModelOptions o;
  o.layers = kMostLayers + 1;
  try {
    parameters_of(o);
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "[model] layers must be at most 65536, got 65537");
  }
}

}  // namespace
}  // namespace horner
