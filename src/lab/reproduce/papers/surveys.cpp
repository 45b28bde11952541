// Every mixer on one protocol: what none of the papers has.
#include "lab/reproduce/papers/papers.h"
#include "mixers/mixer.h"

namespace horner {
namespace {

const Protocol kSurvey = {.seeds = 2, .rates = kRates};

// All mixers of THE list with their usual settings, less `conv`, which is a part of others.
std::vector<Arm> every_mixer(const std::function<TrainOptions(const std::string&)>& options) {
  std::vector<Arm> arms;
  for (const MixerType& type : mixers()) {
    const std::string name(type.name);
    if (name != "conv") arms.push_back({name, options(name)});
  }
  return arms;
}

// Delta rules whose eigenvalues may be negative: what tracking a state needs.
void add_negative(
    std::vector<Arm>& arms, const std::function<TrainOptions(const std::string&)>& options
) {
  for (const char* name : {"deltanet", "gated_deltanet"})
    arms.push_back(
        {fmt::format("{} negative", name), options(fmt::format("{}:negative=true", name))}
    );
}

template <int task>
std::vector<Arm> mad_arms(Effort scale) {
  return every_mixer([&](const std::string& mixer) {
    return mad(scale, kMadTasks[task].second, mixer);
  });
}

// Width by width, so that states of many sizes are compared. A convolution hands every mixer the token before, so that 2000 steps
// are enough.
template <int D>
std::vector<Arm> recall_arms(Effort scale) {
  const Recall r = cheap(scale, {128, 24});
  return every_mixer([&](const std::string& mixer) {
    TrainOptions o = recall(scale, mixer, r.T, r.pairs);
    o.model.D = D;
    if (scale == Effort::cpu) o.schedule.steps = 300;
    o.schedule.warmup = o.schedule.steps / 20;
    return o;
  });
}

template <int group>
std::vector<Arm> tracking_arms(Effort scale) {
  static constexpr const char* kGroups[] = {"Z2", "Z3", "S3", "S5"};
  const bool gpu = scale == Effort::gpu;
  const auto options = [&](const std::string& mixer) {
    const std::string task = fmt::format("group:group={},k={}", kGroups[group], gpu ? 64 : 16);
    TrainOptions o = track(scale, task, mixer, gpu ? 256 : 64);
    o.model.layers = 2;
    o.model.D = gpu ? 128 : 64;
    o.optim.lr = 1e-3;
    o.schedule.steps = gpu ? 4000 : 300;
    o.schedule.warmup = o.schedule.steps / 20;
    o.train.batch = gpu ? 128 : 32;
    o.train.target = 0;
    o.eval.every = 0;
    return o;
  };
  std::vector<Arm> arms = every_mixer(options);
  add_negative(arms, options);
  return arms;
}

Claim task_of(
    std::string name, std::string says, std::string score, std::vector<Arm> (*arms)(Effort)
) {
  Claim c{
      std::move(name),
      std::move(says),
      "every mixer with its usual settings",
      std::move(score),
      {}};
  c.protocol = kSurvey;
  c.arms = arms;
  return c;
}

}  // namespace

Paper mad_survey() {
  const auto claim = [](const char* name, const char* says, std::vector<Arm> (*arms)(Effort)) {
    Claim c = task_of(name, says, "test/accuracy", arms);
    c.settings = mad_settings();
    return c;
  };
  return {
      "mad",
      "2403.17844",
      "The six tasks of mechanistic architecture design, every mixer",
      {claim("compress", "Rebuild every token from the last output", mad_arms<0>),
       claim("fuzzy recall", "Recall with keys and values of several tokens", mad_arms<1>),
       claim("recall", "Recall the value that a key had before", mad_arms<2>),
       claim("memorise", "Keep a table in the weights", mad_arms<3>),
       claim("noisy recall", "Recall with noise in between", mad_arms<4>),
       claim("selective copy", "Copy the tokens that stand among blanks", mad_arms<5>)},
      "two layers of width 128",
      true};
}

Paper recall_survey() {
  const auto claim = [](const char* name, std::vector<Arm> (*arms)(Effort)) {
    Claim c = task_of(
        name,
        "Recall 24 pairs in 128 tokens by a convolution and one mixer of this width",
        "test/accuracy",
        arms
    );
    c.settings = {
        {"task", "MQAR, vocabulary 8192, T 64 to 512, 4 to 128 pairs"},
        {"model", "2 layers, D = 64 to 512"},
        {"steps", "64 epochs of 100,000"},
        {"learning rates", "logspace(-4, -2, 4)"},
        {"seeds", "1"}};
    return c;
  };
  return {
      "recall-state",
      "2312.04927",
      "Multi-query recall against bytes of state, every mixer",
      {claim("D = 32", recall_arms<32>),
       claim("D = 64", recall_arms<64>),
       claim("D = 128", recall_arms<128>)},
      "a convolution and a mixer of three widths",
      true,
      true};
}

Paper tracking_survey() {
  const auto claim = [](const char* name, const char* says, std::vector<Arm> (*arms)(Effort)) {
    Claim c = task_of(name, says, "test/accuracy", arms);
    c.settings = {
        {"task", "words of groups, trained on 20 to 128 elements, tested on longer ones"},
        {"model", "1 or 2 layers, D = 128 to 384"}};
    return c;
  };
  return {
      "tracking",
      "2411.12537",
      "State tracking, every mixer",
      {claim("parity", "Products in Z2 so far", tracking_arms<0>),
       claim("Z3", "Sums modulo 3 so far", tracking_arms<1>),
       claim("S3", "Products of permutations of 3 so far", tracking_arms<2>),
       claim("S5", "Products of permutations of 5 so far", tracking_arms<3>)},
      "two layers of width 128, words of 64 elements",
      true};
}

}  // namespace horner
