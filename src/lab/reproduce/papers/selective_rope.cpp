#include "lab/reproduce/papers/papers.h"

namespace horner {
namespace {

// `own`: further settings of the selective rotation, if the paper states them for the task.
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

// Every angle has the same temperature, no gate and no SiLU, so an angle can have any value. The temperature is 10, not the
// paper's 1: the weights start near 0, and with 1 they would need twice the steps to reach pi.
constexpr const char* kTracking =
    ",position.base=1,position.gate=none,position.activation=none,position.temperature_max=10";
// The spectrum of random features, low rank, differences instead of a convolution.
constexpr const char* kCopying =
    ",position.increment=skip,position.rank=32,position.temperature=rfa,"
    "position.temperature_max=0.25";

std::vector<Arm> copying(Effort scale) {
  return positions(
      "gla",
      [&](const std::string& mixer) {
        TrainOptions o = track(scale, "copy:M=12,least=4,G=0,A=28", mixer, 48);
        o.model.layers = 2;
        return o;
      },
      kCopying
  );
}

std::vector<Arm> mqar(Effort scale) {
  return positions("gla", [&](const std::string& mixer) { return recall(scale, mixer, 64, 8); });
}

// On a CPU 4000 steps: after 1500 one seed of three was exact at the training length, and none beyond.
TrainOptions products(Effort scale, const std::string& group, const std::string& mixer) {
  TrainOptions o = track(scale, fmt::format("group:group={},k=32", group), mixer, 128);
  if (scale == Effort::cpu) o.schedule.steps = 4000, o.schedule.warmup = 200, o.eval.every = 400;
  return o;
}

std::vector<Arm> swaps(Effort scale) {
  return positions(
      "gla",
      [&](const std::string& mixer) {
        TrainOptions o = products(scale, "Z2", mixer);
        o.train.target = 0;  // 32 steps are exact long before 128 are
        return o;
      },
      kTracking
  );
}

std::vector<Arm> rotations(Effort scale) {
  TrainOptions o =
      products(scale, "Z3", fmt::format("deltanet:position.kind=selective_rope{}", kTracking));
  o.model.layers = 2;
  return {{"selective", o}};
}

std::vector<Arm> text(Effort scale) {
  auto arms =
      positions("gla", [&](const std::string& mixer) { return language(scale, {mixer}, 1200); });
  for (Arm& arm : arms) arm.label = "gla " + arm.label;
  auto more =
      positions("softmax", [&](const std::string& m) { return language(scale, {m}, 1200); });
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
           "MQAR T=64, 8 pairs, a causal convolution before GLA",
           "test/accuracy",
           {{E::above, "selective", "RoPE"}, {E::above, "RoPE", "none"}},
           3,
           mqar},
          {"state tracking",
           "One layer of GLA with selective rotation learns to swap (S2 = Z2) and extrapolates; "
           "without position and with RoPE it fails at the training length",
           "running products in Z2, trained on 32 steps, tested on 128",
           "test_T128/accuracy",
           {{E::reaches, "selective", "", 0.9},
            {E::under, "RoPE", "", 0.7},
            {E::under, "none", "", 0.7}},
           3,
           swaps},
          {"thirds",
           "Two layers of DeltaNet with selective rotation solve A3 = Z3 at the training length",
           "running sums modulo 3, trained and tested on 32 steps; DeltaNet alone is not asked: at "
           "this length it solves them too",
           "test/accuracy",
           {{E::reaches, "selective", "", 0.9}},
           3,
           rotations},
          {"copying",
           "With selective rotation a copy learned on short strings extends to longer ones; with "
           "RoPE not",
           "strings of 4 to 12 letters in training, of 24 in the test, GLA",
           "test_T48/accuracy",
           {{E::reaches, "selective", "", 0.9},
            {E::above, "selective", "RoPE"},
            {E::above, "selective", "none"}},
           3,
           copying},
          {"text",
           "In language modelling selective rotation is at least as good as RoPE",
           "bytes of text",
           "test/loss",
           {{E::above, "gla selective", "gla RoPE", -0.01},
            {E::above, "gla selective", "gla none", -0.01},
            {E::above, "softmax selective", "softmax none"}},
           3,
           text},
      }};
}

}  // namespace horner
