#include "lab/explain/explain.h"
#include "lab/reproduce/papers/papers.h"
#include "tasks/task.h"

namespace horner {
namespace {

std::vector<Arm> arms_of(
    Effort scale, const std::vector<std::pair<std::string, std::string>>& list, int64_t steps = 600
) {
  std::vector<Arm> arms;
  for (const auto& [label, mixer] : list) arms.push_back({label, language(scale, {mixer}, steps)});
  return arms;
}

// K = 16, because the state of a high order is allocated to measure its size.
std::vector<Arm> orders(Effort scale) {
  const char* heads = scale == Effort::gpu ? ",heads=16" : "";
  std::vector<std::pair<std::string, std::string>> list = {
      {"softmax", fmt::format("softmax:norm=l2{}", heads)}};
  for (const int order : {0, 1, 2, 4, 6, 8, 10}) {
    list.emplace_back(
        fmt::format("order {}", order), fmt::format("taylor:norm=l2,order={}{}", order, heads)
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
       {"gate", "softmax:norm=gate,clamp=5"}},
      1500
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

std::vector<Arm> trained(Effort scale) { return arms_of(scale, {{"softmax", "softmax"}}); }

// Shares of mean |x^n / n!| over the layers of a trained model that reads text of the test.
void probe(const Trial& trial, Finding& finding) {
  for (int n = 0; n <= 10; ++n) finding.rows.push_back({fmt::format("order {}", n)});
  finding.rows.push_back({"all above order 4"});
  for (const std::string& folder : trial.folders.at("softmax")) {
    const TrainOptions o = read_result(folder).options;
    const Batch batch = make_task(o.task)->batch(Split::test, {0});
    std::vector<double> shares(11);
    for (int64_t layer = 0; layer < o.model.layers; ++layer) {
      const auto own = explain_layer(folder, layer, batch.tokens).orders;
      for (size_t n = 0; n < shares.size(); ++n) shares[n] += own[n] / double(o.model.layers);
    }
    double above = 0;
    for (size_t n = 0; n < shares.size(); ++n) {
      finding.rows[n].scores.push_back(shares[n]);
      if (n > 4) above += shares[n];
    }
    finding.rows.back().scores.push_back(above);
  }
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
           "no difference",
           "bytes of text, norm l2 in every arm, K = 16",
           "test/loss",
           {{E::above, "order 1", "order 0"},
            {E::above, "order 2", "order 1"},
            {E::above, "order 4", "order 2"},
            {E::above, "order 6", "order 4", -0.01},
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
          {"probe",
           "In trained models the largest terms x^n / n! of the scores lie far above n = 1: at "
           "order 5 to 23 in all layers but one of Llama-3-8B",
           "the softmax model on bytes of text, mean over its layers, n = 0 .. 10",
           "share",
           {{E::reaches, "all above order 4", "", 0.5}},
           3,
           trained,
           probe},
      }};
}

}  // namespace horner
