#include "lab/papers/papers.h"

namespace horner {
namespace {

std::vector<Arm> arms_of(
    Effort scale, const std::vector<std::pair<std::string, std::string>>& list
) {
  std::vector<Arm> arms;
  for (const auto& [label, mixer] : list) arms.push_back({label, language(scale, {mixer})});
  return arms;
}

std::vector<Arm> orders(Effort scale) {
  std::vector<std::pair<std::string, std::string>> list = {{"softmax", "softmax:norm=l2"}};
  for (const int order : {0, 1, 2, 4, 6, 8, 10}) {
    list.emplace_back(
        fmt::format("order {}", order), fmt::format("taylor:norm=l2,order={}", order)
    );
  }
  return arms_of(scale, list);
}

std::vector<Arm> normalisers(Effort scale) {
  return arms_of(
      scale,
      {{"softmax", "softmax"},
       {"norm l2", "softmax:norm=l2"},
       {"norm rms", "softmax:norm=rms"},
       {"norm layer", "softmax:norm=layer"},
       {"gate", "softmax:norm=gate,clamp=5"}}
  );
}

std::vector<Arm> powers(Effort scale) {
  return arms_of(
      scale,
      {{"softmax", "softmax"},
       {"elu1", "linear:position.kind=rope"},
       {"elu1 to 4", "linear:position.kind=rope,power=4,series=true"},
       {"relu", "linear:position.kind=rope,feature=relu"},
       {"relu to 4", "linear:position.kind=rope,feature=relu,power=4,series=true"}}
  );
}

}  // namespace

Paper taylor_paper() {
  using E = Expectation;
  return {
      "taylor",
      "2507.23632",
      "Softmax attention as a Taylor series of recurrent networks",
      {
          {"orders",
           "More orders of the series bring the loss down to softmax's; from order 8 on there is "
           "no "
           "difference",
           "bytes of text, norm l2 in every arm",
           "test/loss",
           {{E::above, "order 2", "order 0"},
            {E::above, "order 2", "order 1"},
            {E::above, "order 4", "order 2"},
            {E::above, "softmax", "order 2"},
            {E::near, "order 8", "softmax", 0.02},
            {E::near, "order 10", "softmax", 0.02}},
           3,
           orders},
          {"norm",
           "A vector norm replaces the denominator at no loss; a gate in its place is worse",
           "bytes of text, softmax with each normaliser",
           "test/loss",
           {{E::near, "norm l2", "softmax", 0.02},
            {E::near, "norm rms", "softmax", 0.02},
            {E::near, "norm layer", "softmax", 0.02},
            {E::above, "softmax", "gate"}},
           3,
           normalisers},
          {"powers",
           "Powers help linear attention but do not bring it to softmax",
           "bytes of text, powers 1..4 over n! of the weights of elu+1 and relu features",
           "test/loss",
           {{E::above, "elu1 to 4", "elu1"},
            {E::above, "relu to 4", "relu"},
            {E::above, "softmax", "elu1 to 4"},
            {E::above, "softmax", "relu to 4"}},
           3,
           powers},
      }};
}

}  // namespace horner
