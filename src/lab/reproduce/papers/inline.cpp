#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <numeric>

#include "lab/explain/explain.h"
#include "lab/reproduce/masking.h"
#include "lab/reproduce/papers/papers.h"
#include "tasks/task.h"
#include "train/checkpoint.h"

namespace horner {
namespace {

at::Tensor elu1(const at::Tensor& x) { return at::elu(x) + 1; }

// Inputs whose features are c phi(x): other vectors, the same direction of features.
at::Tensor scaled_features(const at::Tensor& x, double c) {
  const at::Tensor y = c * elu1(x);
  return at::where(y > 1, y - 1, y.log());  // phi^-1(y) = y - 1 if y > 1, else ln y
}

// The share of 64 pairs (x_i, p_i) of different tokens whose rows of weights over the same tokens differ by less than
// 1e-3, asked
// of the mixer itself with queries and keys that are its inputs.
double confused(const std::string& settings, const at::Tensor& x, const at::Tensor& p) {
  const c10::NoGradGuard no_graph;
  const auto mixer = make_mixer(MixerSpec::parse(settings), x.size(-1));
  mixer->to(at::kDouble);
  auto parameters = mixer->named_parameters();
  for (const char* name : {"q_weight", "k_weight"})
    parameters[name].copy_(at::eye(x.size(-1), at::kDouble));
  const int64_t n = x.size(0);
  const at::Tensor w = mixer->map(at::cat({x, p}).unsqueeze(0))[0][0];  // (2 n, 2 n)
  const at::Tensor a = w.narrow(0, 0, n), b = w.narrow(0, n, n);
  return ((a - b).norm(2, -1) <= 1e-3 * a.norm(2, -1)).to(at::kDouble).mean().item<double>();
}

void collisions(const Trial& trial, Finding& finding) {
  const std::pair<const char*, const char*> arms[] = {
      {"linear elu1", "linear:heads=1,causal=false"},
      {"softmax", "softmax:heads=1,causal=false,position.kind=none"},
      {"InLine", "inline:heads=1,causal=false,residual=0"}};
  for (const auto& [label, mixer] : arms) {
    ArmScores row{label};
    for (int64_t seed = 0; seed < trial.seeds; ++seed) {
      at::Generator random =
          at::make_generator<at::CPUGeneratorImpl>(uint64_t(trial.first_seed + seed));
      const at::Tensor x = at::randn({64, 16}, random, at::kDouble);
      row.scores.push_back(confused(mixer, x, scaled_features(x, 1.7)));
    }
    finding.rows.push_back(row);
  }
}

// LayerNorm, an MLP of 4 D with biases, q, k, v and out with biases, as in DeiT.
Arm image_arm(Effort scale, const std::string& label, const std::string& mixer) {
  TrainOptions o = classify(scale, kPatches, mixer);
  o.model.positions = 64;
  o.model.norm = "layer";
  o.model.mlp = "gelu";
  o.model.mlp_bias = true;
  if (scale == Effort::gpu) {
    o.schedule.steps = 1500;  // 17 times over the images
    o.schedule.warmup = 75;
    o.train.batch = 512;
    o.optim.lr = 2e-3;
  }
  return {label, o};
}

std::vector<Arm> images(Effort scale) {
  const auto arm = [&](const char* label, const char* mixer) {
    return image_arm(scale, label, std::string(mixer) + "causal=false");
  };
  return {
      arm("softmax", "softmax:bias=true,position.kind=none,"),
      arm("linear", "linear:bias=true,feature=relu,"),
      arm("InLine", "inline:columns=8,"),
      arm("InLine, no residual", "inline:residual=0,")};
}

// Division by the sum, or subtraction of the mean, with each feature; identity has no sum to divide by.
std::vector<Arm> kernels(Effort scale) {
  const auto arm = [&](const char* label, const char* mixer) {
    return image_arm(scale, label, std::string(mixer) + "causal=false");
  };
  return {
      arm("relu, division", "linear:bias=true,feature=relu,"),
      arm("relu, subtraction", "inline:residual=0,feature=relu,"),
      arm("exp, subtraction", "inline:residual=0,feature=exp,"),
      arm("leaky relu, subtraction", "inline:residual=0,feature=leaky_relu,"),
      arm("identity, subtraction", "inline:residual=0,")};
}

// In the trained models, on images of the test: mean over images, heads and layers.
void confusions(const Trial& trial, Finding& finding) {
  constexpr int64_t kImages = 4;
  for (const auto& [arm, folders] : trial.folders) {
    ArmScores pairs{arm + ": pairs"}, doubled{arm + ": q and 2 q"};
    for (const std::string& folder : folders) {
      const TrainOptions o = read_result(folder).options;
      const auto task = make_task(o.task);
      double confused = 0, apart = 0;
      for (int64_t image = 0; image < kImages; ++image) {
        const Batch batch = task->batch(Split::test, {image});
        for (int64_t layer = 0; layer < o.model.layers; ++layer) {
          const Confusion c = explain_layer(folder, layer, batch.features).confusion;
          for (const auto& head : c.heads) confused += head.pairs / double(c.heads.size());
          apart += c.doubled;
        }
      }
      pairs.scores.push_back(confused / double(kImages * o.model.layers));
      doubled.scores.push_back(apart / double(kImages * o.model.layers));
    }
    finding.rows.push_back(pairs);
    finding.rows.push_back(doubled);
  }
}

// Accuracy on test images if every layer may not read some tokens.
void masks(const Trial& trial, Finding& finding) {
  const struct {
    const char* name;
    PatchMask mask;
  } all[] = {
      {"nothing", {}},
      {"local 3 x 3", {3, true}},
      {"local 5 x 5", {5, true}},
      {"random 9", {3, false}},
      {"random 25", {5, false}}};
  for (const char* arm : {"softmax", "linear", "InLine, no residual"}) {
    for (const auto& [name, mask] : all) {
      ArmScores row{fmt::format("{}: {} masked", arm, name)};
      for (const std::string& folder : trial.folders.at(arm)) {
        const auto task = make_task(read_result(folder).options.task);
        row.scores.push_back(masked_accuracy(*load_model(folder), *task, mask, 250));
      }
      finding.rows.push_back(row);
    }
  }
}

// The share of the weights in the 3 x 3 tokens around a token, on 16 images of the test.
void localities(const Trial& trial, Finding& finding) {
  std::vector<int64_t> some(16);
  std::iota(some.begin(), some.end(), 0);
  for (const char* arm : {"softmax", "linear", "InLine, no residual"}) {
    ArmScores row{arm};
    for (const std::string& folder : trial.folders.at(arm)) {
      const auto task = make_task(read_result(folder).options.task);
      row.scores.push_back(local_share(*load_model(folder), task->batch(Split::test, some).features)
      );
    }
    finding.rows.push_back(row);
  }
}

constexpr const char* kMended =
    "InLine ran with relu instead of the identity, and its residual was a row of three taps that "
    "wraps "
    "around the image instead of 3 x 3";

const Protocol kImages = {.seeds = 4, .most = 12, .rates = kRates};
// Each look measures the models of all seeds again, on a CPU.
const Protocol kFewLooks = {.seeds = 4, .most = 8, .rates = kRates};

}  // namespace

Paper inline_paper() {
  using E = Expectation;
  Claim injectivity{
      "injectivity",
      "Linear attention gives different queries the same weights; softmax and InLine do not",
      "64 tokens x and 64 tokens p = phi^-1(1.7 phi(x)) in one sequence, K = 16, weights of the "
      "mixers "
      "themselves: share of pairs with the same weights",
      "share",
      {{E::reaches, "linear elu1", "", 0.99},
       {E::under, "softmax", "", 0.01},
       {E::under, "InLine", "", 0.01}},
      {.seeds = 4}};
  injectivity.measure = collisions;
  injectivity.lower_is_better = true;
  injectivity.revision = 2;
  injectivity.mended = "the formulas were tested, not the mixers";
  injectivity.prints =
      "a proof; Swin-T top-1 with division against subtraction: relu 77.3, 79.8; identity 0.2, "
      "80.2";
  Claim pictures{
      "images",
      "InLine beats linear attention on images and reaches softmax; its local residual is part of "
      "the "
      "gain",
      "grey CIFAR-10 in patches of 4 x 4 pixels, moved and mirrored",
      "test/accuracy",
      {{E::above, "InLine", "linear"},
       {E::above, "InLine", "InLine, no residual"},
       {E::above, "InLine", "softmax", -0.01}},
      kImages,
      images};
  pictures.revision = 2;
  pictures.mended = kMended;
  pictures.settings = {
      {"task", "ImageNet-1k, 224 x 224, patches of 16, flips, crops and more"},
      {"data", "1.28 M images, 300 epochs"},
      {"model", "DeiT-T: 12 layers, D = 192, 6 heads, MLP 4 D, LayerNorm, drop-path 0.1"},
      {"positions", "learned"},
      {"steps", "300 epochs, warm-up 20 epochs, cosine"},
      {"optimiser", "AdamW (0.9, 0.999), weight decay 0.05, clip 5"},
      {"learning rates", "5e-4 times the batch over 512"},
      {"seeds", "1"},
      {"mixer", "feature identity, residual 3 x 3; the plain linear baseline is not published"}};
  pictures.prints = "ImageNet top-1, DeiT-T: 74.5 against 69.8 (linear) and 72.2 (softmax)";
  pictures.printed = {
      {"softmax", "72.2"}, {"linear", "69.8"}, {"InLine", "74.5"}, {"InLine, no residual", "70.0"}};
  Claim networks{
      "confusion",
      "In trained networks linear attention confuses queries; softmax and InLine keep them apart",
      "the models of the claim `images`, four test images: how far the weights of q and 2 q are "
      "apart, and the share of pairs of different tokens with the same weights",
      "value",
      {{E::under, "linear: q and 2 q", "", 1e-3},
       {E::reaches, "InLine: q and 2 q", "", 1e-3},
       {E::reaches, "softmax: q and 2 q", "", 1e-3}},
      kFewLooks,
      images,
      confusions};
  networks.revision = 2;
  networks.mended =
      "doubling the query also doubled InLine's (1 - q.z)/n, so that its 1 was an artefact, and "
      "distances were taken behind the feature map, which hid the collisions that relu makes";
  networks.settings = pictures.settings;
  networks.prints = "a histogram of confusions, no number";
  Claim collided = networks;
  collided.name = "confused pairs";
  collided.says = "Pairs of different tokens get the same weights from linear attention more often";
  collided.expects = {{E::above, "linear: pairs", "InLine: pairs"}};
  collided.revision = 1;
  collided.mended = "";
  Claim table = pictures;
  table.name = "kernels";
  table.says =
      "Subtraction in the place of division helps, and with it even the identity is a good feature";
  table.setting = "as the claim `images`, no residual";
  table.expects = {
      {E::above, "relu, subtraction", "relu, division"},
      {E::above, "identity, subtraction", "relu, division"}};
  table.protocol = {.seeds = 4, .most = 12, .rates = kRates};
  table.arms = kernels;
  table.revision = 1;
  table.mended = "";
  table.prints =
      "Swin-T top-1, division and subtraction: relu 77.3, 79.8; leaky relu 1.5, 79.8; identity "
      "0.2, "
      "80.2 (second-hand)";
  table.printed = {
      {"relu, division", "77.3"},
      {"relu, subtraction", "79.8"},
      {"leaky relu, subtraction", "79.8"},
      {"identity, subtraction", "80.2"}};
  Claim masked{
      "masking",
      "Attention lives from the tokens around the query: masking them costs far more than masking "
      "as many at random, and costs "
      "softmax more than InLine",
      "the models of the claim `images`, 250 test images; in every layer a query may not read the "
      "3 x 3 or 5 x 5 tokens around "
      "it, or as many at random",
      "accuracy",
      {{E::above, "softmax: random 9 masked", "softmax: local 3 x 3 masked"},
       {E::above,
        "InLine, no residual: random 9 masked",
        "InLine, no residual: local 3 x 3 masked"},
       {E::above, "InLine, no residual: local 5 x 5 masked", "softmax: local 5 x 5 masked"}},
      kFewLooks,
      images,
      masks};
  masked.settings = pictures.settings;
  masked.prints =
      "DeiT-T, nothing, local 3 x 3, 5 x 5, random 9, 25: softmax 72.2, 51.6, 24.3, 71.7, 71.5; "
      "InLine without residual 70.0, "
      "58.0, 40.0, 70.0, 69.9 (second-hand)";
  Claim locality{
      "locality",
      "Softmax reads the tokens around a query more than linear attention does",
      "the models of the claim `images`, 16 test images: share of |w| in the 3 x 3 tokens around "
      "the query, mean over layers; equal "
      "weights have 0.12",
      "share",
      {{E::above, "softmax", "linear"}, {E::above, "softmax", "InLine, no residual"}},
      kFewLooks,
      images,
      localities};
  locality.settings = pictures.settings;
  locality.prints = "a figure: softmax above linear attention in most layers";
  return {
      "inline",
      "2412.06590",
      "Bridging the divide: reconsidering softmax and linear attention",
      {injectivity, pictures, networks, collided, table, masked, locality},
      "grey CIFAR-10 with models of 3 M parameters"};
}

}  // namespace horner
