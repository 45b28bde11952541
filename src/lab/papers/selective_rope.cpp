#include "lab/papers/papers.h"

namespace horner {
namespace {

// `own`: further settings of the selective rotation, where the paper has them for the task.
std::vector<Arm> positions(
    const std::string& mixer,
    const std::function<TrainOptions(const std::string&)>& options,
    const std::string& own = ""
) {
  const std::string kind = mixer + ":position.kind=";
  return {
      {"none", options(kind + "none")},
      {"RoPE", options(kind + "rope")},
      {"selective", options(kind + "selective_rope" + own)}};
}

// Every angle at the same temperature, no gate: what tracks a state must turn by as much as it likes.
constexpr const char* kTracking = ",position.base=1,position.gate=none";
// The spectrum of random features, low rank, differences instead of a convolution.
constexpr const char* kCopying =
    ",position.increment=skip,position.rank=32,position.temperature=rfa,"
    "position.temperature_max=0.25";

std::vector<Arm> copying(Effort scale) {
  return positions(
      "gla",
      [&](const std::string& mixer) {
        TrainOptions o = track(scale, "copy:M=16,G=4,A=28", mixer, 64);
        o.model.layers = 2;
        o.model.mlp = "swiglu";
        return o;
      },
      kCopying
  );
}

std::vector<Arm> mqar(Effort scale) {
  return positions("gla", [&](const std::string& mixer) { return recall(scale, mixer, 128, 16); });
}

std::vector<Arm> swaps(Effort scale) {
  return positions(
      "gla",
      [&](const std::string& mixer) { return track(scale, "group:group=Z2,k=32", mixer, 128); },
      kTracking
  );
}

std::vector<Arm> rotations(Effort scale) {
  return positions(
      "deltanet",
      [&](const std::string& mixer) {
        TrainOptions o = track(scale, "group:group=Z3,k=32", mixer, 128);
        o.model.layers = 2;
        return o;
      },
      kTracking
  );
}

std::vector<Arm> text(Effort scale) {
  auto arms = positions("gla", [&](const std::string& mixer) { return language(scale, {mixer}); });
  for (Arm& arm : arms) arm.label = "gla " + arm.label;
  auto more = positions("softmax", [&](const std::string& m) { return language(scale, {m}); });
  for (Arm& arm : more) arms.push_back({"softmax " + arm.label, arm.options});
  return arms;
}

}  // namespace

Paper selective_rope_paper() {
  using E = Expectation;
  return {
      "selective-rope",
      "2511.17388",
      "Selective rotary position embedding",
      {
          {"recall",
           "On MQAR selective rotation beats RoPE, which beats no position (GLA)",
           "MQAR T=128, 16 pairs, a causal convolution before GLA",
           "test/accuracy",
           {{E::above, "selective", "RoPE"}, {E::above, "RoPE", "none"}},
           3,
           mqar,
           nullptr,
           kRates},
          {"state tracking",
           "One layer of GLA with selective rotation learns to swap (S2 = Z2) and extrapolates; "
           "without position and with RoPE it fails at the training length",
           "running products in Z2, trained on 32 steps, tested on 128",
           "128/accuracy",
           {{E::reaches, "selective", "", 0.9},
            {E::under, "RoPE", "", 0.7},
            {E::under, "none", "", 0.7}},
           3,
           swaps,
           nullptr,
           kRates},
          {"thirds",
           "Two layers of DeltaNet with selective rotation solve A3 = Z3 at the training length",
           "running sums modulo 3, trained and tested on 32 steps",
           "test/accuracy",
           {{E::reaches, "selective", "", 0.9}, {E::above, "selective", "none"}},
           3,
           rotations,
           nullptr,
           kRates},
          {"copying",
           "With selective rotation a copy learned on short strings extends to longer ones; with "
           "RoPE not",
           "16 tokens, copied after 4 blanks in training (T = 36), after 32 in the test (T = 64), "
           "GLA",
           "64/accuracy",
           {{E::above, "selective", "RoPE"}, {E::above, "selective", "none"}},
           3,
           copying,
           nullptr,
           kRates},
          {"text",
           "In language modelling selective rotation is at least as good as RoPE",
           "bytes of text",
           "test/loss",
           {{E::above, "gla selective", "gla RoPE", -0.01},
            {E::above, "gla selective", "gla none", -0.01},
            {E::above, "softmax selective", "softmax none"}},
           5,
           text},
      }};
}

}  // namespace horner
