#include "lab/reproduce/papers/papers.h"

namespace horner {
namespace {

// 64 features per head, from functions of hidden width 64, on a CPU 16.
std::string luna(Effort scale) {
  return fmt::format("luna:causal=false,heads=2,map.hidden={}", scale == Effort::gpu ? 64 : 16);
}

// Features of every arm: 64 per head, or as many as the map has (elu1: K).
std::vector<Arm> features_on(
    Effort scale, const std::function<TrainOptions(const std::string&)>& options
) {
  return {
      {"LUNA", options(luna(scale))},
      {"Performer", options("linear:causal=false,heads=2,feature=favor,feature_dim=64")},
      {"elu1", options("linear:causal=false,heads=2")},
      {"softmax", options("softmax:causal=false,heads=2,position.kind=none")}};
}

std::vector<Arm> images(Effort scale) {
  return features_on(scale, [&](const std::string& mixer) {
    TrainOptions o = classify(scale, "patches", mixer);
    o.model.positions = 64;
    return o;
  });
}

std::vector<Arm> expressions(Effort scale) {
  const bool gpu = scale == Effort::gpu;
  return features_on(scale, [&](const std::string& mixer) {
    TrainOptions o =
        classify(scale, gpu ? "listops:above=50,below=512" : "listops:above=10,below=128", mixer);
    o.model.positions = gpu ? 512 : 128;
    if (!gpu) o.schedule.steps = 600, o.schedule.warmup = 30, o.optim.lr = 1e-3;
    return o;
  });
}

constexpr const char* kText = "classify_text:set=clinc150,T=64";

TrainOptions questions_of(Effort scale, const std::string& mixer) {
  TrainOptions o = classify(scale, kText, mixer);
  o.model.positions = 64;
  return o;
}

std::vector<Arm> questions(Effort scale) {
  return features_on(scale, [&](const std::string& mixer) { return questions_of(scale, mixer); });
}

// The softmax classifier of `questions`. Its attention is replaced; q, k, v, o and the rest stay. Then everything is trained
// for a tenth of the steps at a third of the learning rate.
std::vector<Arm> conversion(Effort scale) {
  const auto brief = [&](const std::string& mixer) {
    TrainOptions o = questions_of(scale, mixer);
    o.schedule.steps /= 10;
    o.schedule.warmup = o.schedule.steps / 10;
    o.optim.lr /= 3;
    return o;
  };
  const std::string softmax = "softmax:causal=false,heads=2,position.kind=none";
  return {
      {"softmax", questions_of(scale, softmax)},
      {"softmax, trained on", brief(softmax), "softmax"},
      {"LUNA, converted", brief(luna(scale)), "softmax"},
      {"elu1, converted", brief("linear:causal=false,heads=2"), "softmax"},
      {"LUNA, from scratch", brief(luna(scale))}};
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
           images,
           nullptr,
           kRates},
          {"expressions",
           "On ListOps learned features are at softmax's level",
           "ListOps, both directions",
           "test/accuracy",
           {{E::above, "LUNA", "softmax", -0.02}, {E::above, "LUNA", "Performer", -0.02}},
           3,
           expressions},
          {"questions",
           "On text learned features beat fixed ones and softmax",
           "CLINC150: 150 kinds of questions, as bytes, 64 at most, both directions",
           "test/accuracy",
           {{E::above, "LUNA", "Performer"},
            {E::above, "LUNA", "elu1"},
            {E::above, "LUNA", "softmax"}},
           3,
           questions},
          {"conversion",
           "A trained softmax encoder whose attention is replaced by LUNA, with all other weights "
           "kept and a brief training, loses almost nothing (99.7 % of BERT's score)",
           "the softmax model of `questions`, then a tenth of its steps at a third of its learning "
           "rate",
           "test/accuracy",
           {{E::above, "LUNA, converted", "softmax", -0.02},
            {E::above, "LUNA, converted", "elu1, converted"},
            {E::above, "LUNA, converted", "LUNA, from scratch"}},
           3,
           conversion},
      }};
}

}  // namespace horner
