#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "lab/explain/explain.h"
#include "lab/reproduce/papers/papers.h"
#include "tasks/task.h"

namespace horner {
namespace {

at::Tensor elu1(const at::Tensor& x) { return at::elu(x) + 1; }

// Queries p = phi^-1(c phi(q)): other vectors, the same direction of features.
at::Tensor scaled_features(const at::Tensor& q, double c) {
  const at::Tensor y = c * elu1(q);
  return at::where(y > 1, y - 1, y.log());  // phi^-1(y) = y - 1 if y > 1, else ln y
}

// The share of pairs (q, p) of different queries whose rows of weights differ by less than 1e-3.
double confused(
    const at::Tensor& q,
    const at::Tensor& p,
    const std::function<at::Tensor(const at::Tensor&)>& weights
) {
  const at::Tensor a = weights(q), b = weights(p);
  const at::Tensor same = (a - b).norm(2, -1) <= 1e-3 * a.norm(2, -1);
  return same.to(at::kDouble).mean().item<double>();
}

void collisions(const Trial& trial, Finding& finding) {
  std::vector<ArmScores>& rows = finding.rows;
  rows = {{"linear elu1", {}}, {"softmax", {}}, {"InLine", {}}};
  for (int64_t seed = 0; seed < trial.seeds; ++seed) {
    at::Generator random = at::make_generator<at::CPUGeneratorImpl>(uint64_t(seed));
    const auto draw = [&](int64_t n) { return at::randn({n, 16}, random, at::kDouble); };
    const at::Tensor q = draw(256), k = draw(64), p = scaled_features(q, 1.7);
    rows[0].scores.push_back(confused(q, p, [&](const at::Tensor& x) {
      const at::Tensor w = elu1(x).matmul(elu1(k).t());
      return w / w.sum(-1, true);
    }));
    rows[1].scores.push_back(confused(q, p, [&](const at::Tensor& x) {
      return (x.matmul(k.t()) / 4).softmax(-1);
    }));
    rows[2].scores.push_back(confused(q, p, [&](const at::Tensor& x) {
      const at::Tensor w = x.matmul(k.t()) / 4;
      return w - w.mean(-1, true) + 1.0 / 64;
    }));
  }
}

std::vector<Arm> images(Effort scale) {
  const auto arm = [&](const std::string& label, const std::string& mixer) {
    TrainOptions o = classify(scale, "patches", mixer);
    o.model.positions = 64;
    return Arm{label, o};
  };
  return {
      arm("softmax", "softmax:causal=false,position.kind=none"),
      arm("linear", "linear:causal=false,feature=relu"),
      arm("InLine", "inline:causal=false,feature=relu"),
      arm("InLine, no residual", "inline:causal=false,feature=relu,residual=0")};
}

// In the trained models, on an image of the test: mean over heads and layers.
void confusions(const Trial& trial, Finding& finding) {
  for (const auto& [arm, folders] : trial.folders) {
    ArmScores pairs{arm + ": pairs"}, doubled{arm + ": q and 2 q"};
    for (const std::string& folder : folders) {
      const TrainOptions o = read_result(folder).options;
      const Batch batch = make_task(o.task)->batch(Split::test, {0});
      double confused = 0, apart = 0;
      for (int64_t layer = 0; layer < o.model.layers; ++layer) {
        const Confusion c = explain_layer(folder, layer, batch.features).confusion;
        for (const auto& head : c.heads) confused += head.pairs / double(c.heads.size());
        apart += c.doubled;
      }
      pairs.scores.push_back(confused / double(o.model.layers));
      doubled.scores.push_back(apart / double(o.model.layers));
    }
    finding.rows.push_back(pairs);
    finding.rows.push_back(doubled);
  }
}

}  // namespace

Paper inline_paper() {
  using E = Expectation;
  return {
      "inline",
      "2412.06590",
      "Bridging the divide: reconsidering softmax and linear attention",
      {
          {"injectivity",
           "Linear attention gives different queries the same weights; softmax and InLine do not",
           "queries p = phi^-1(1.7 phi(q)), 64 keys, K = 16: share of pairs with the same weights",
           "share",
           {{E::reaches, "linear elu1", "", 0.99},
            {E::under, "softmax", "", 0.01},
            {E::under, "InLine", "", 0.01}},
           3,
           nullptr,
           collisions},
          {"images",
           "InLine beats linear attention on images and reaches softmax; its local residual is "
           "part of the gain",
           "grey CIFAR-10 in patches of 4 x 4 pixels",
           "test/accuracy",
           {{E::above, "InLine", "linear"},
            {E::above, "InLine", "InLine, no residual"},
            {E::above, "InLine", "softmax", -0.02}},
           3,
           images,
           nullptr,
           kRates},
          {"confusion",
           "In trained networks linear attention confuses queries; softmax and InLine keep them "
           "apart",
           "the models of the claim `images`, one test image: share of pairs of different queries "
           "with the same weights, and how far the weights of q and 2 q are apart",
           "value",
           {{E::under, "linear: q and 2 q", "", 1e-3},
            {E::reaches, "InLine: q and 2 q", "", 1e-3},
            {E::reaches, "softmax: q and 2 q", "", 1e-3},
            {E::under, "InLine: pairs", "", 1e-3},
            {E::under, "softmax: pairs", "", 1e-3},
            {E::above, "linear: pairs", "InLine: pairs"}},
           3,
           images,
           confusions,
           kRates},
      }};
}

}  // namespace horner
