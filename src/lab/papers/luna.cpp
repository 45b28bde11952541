#include "lab/papers/papers.h"

namespace horner {
namespace {

// Features of every arm: 64 per head, or what the map gives by itself (elu1: K).
std::vector<Arm> features_on(const std::function<TrainOptions(const std::string&)>& options) {
  return {
      {"LUNA", options("luna:causal=false,heads=2")},
      {"Performer", options("linear:causal=false,heads=2,feature=favor,feature_dim=64")},
      {"elu1", options("linear:causal=false,heads=2")},
      {"softmax", options("softmax:causal=false,heads=2,position.kind=none")}};
}

std::vector<Arm> images(Effort scale) {
  return features_on([&](const std::string& mixer) {
    TrainOptions o = classify(scale, "patches", mixer);
    o.model.positions = 64;
    return o;
  });
}

std::vector<Arm> expressions(Effort scale) {
  return features_on([&](const std::string& mixer) {
    TrainOptions o = classify(
        scale, scale == Effort::gpu ? "listops" : "listops:shortest=20,longest=128", mixer
    );
    o.model.positions = scale == Effort::gpu ? 2000 : 128;
    return o;
  });
}

}  // namespace

Paper luna_paper() {
  using E = Expectation;
  return {
      "luna",
      "2512.08061",
      "LUNA: learned feature maps for linear attention",
      {
          {"images",
           "Learned features beat fixed ones at equal size",
           "grey CIFAR-10 in patches of 4 x 4 pixels, both directions",
           "test/accuracy",
           {{E::above, "LUNA", "Performer"},
            {E::above, "LUNA", "elu1"},
            {E::above, "LUNA", "softmax"}},
           3,
           images},
          {"expressions",
           "On ListOps learned features are at softmax's level",
           "ListOps, both directions",
           "test/accuracy",
           {{E::above, "LUNA", "softmax", -0.02}, {E::above, "LUNA", "Performer", -0.02}},
           3,
           expressions},
      }};
}

}  // namespace horner
