#include "lab/reproduce/papers/papers.h"

namespace horner {
namespace {

std::vector<Arm> parts(Effort scale) {
  std::vector<Arm> arms;
  for (const auto& [label, mixer] : std::vector<std::pair<std::string, std::string>>{
           {"linear", "taylor:order=1,norm=rms,position.kind=none"},
           {"linear + conv",
            "taylor:order=1,norm=rms,conv=2,conv_activation=none,position.kind=none"},
           {"linear + decay", "taylor:order=1,norm=rms,decay=softplus,position.kind=none"},
           {"Mamba-2S", "two_mamba:kernel=linear"},
           {"2Mamba", "two_mamba"},
           {"2Mamba-E", "two_mamba:kernel=exp"},
           {"softmax", "softmax"}}) {
    arms.push_back({label, language(scale, {mixer})});
  }
  return arms;
}

}  // namespace

Paper two_mamba_paper() {
  using E = Expectation;
  return {
      "two-mamba",
      "2602.17363",
      "2Mamba: order 2, decay and a short convolution",
      {
          {"parts",
           "A short convolution and a decay each help linear attention much; squared with both it "
           "is at softmax's level, with the exponential below it",
           "bytes of text",
           "test/loss",
           {{E::above, "linear + conv", "linear"},
            {E::above, "linear + decay", "linear"},
            {E::above, "2Mamba", "Mamba-2S"},
            {E::above, "2Mamba", "softmax", -0.02},
            {E::above, "2Mamba-E", "softmax"}},
           3,
           parts},
      }};
}

}  // namespace horner
