#include "train/resolve.h"

#include "core/check.h"
#include "core/device.h"
#include "train/expect.h"

namespace horner {
namespace {

// "softmax:heads=2" as "softmax:heads=2,causal=false" where the mixer has that setting and the text
// does not give it.
std::string both_directions(const std::string& text) {
  MixerSpec spec = MixerSpec::parse(text);
  if (!spec.find("causal") && has_setting(find_mixer(spec.name), "causal"))
    spec.settings.push_back({"causal", "false"});
  return spec.text();
}

void check_ranges(const TrainOptions& o) {
  const auto at_least = [](const char* name, double value, double least) {
    HORNER_CHECK(value >= least, "{} must be at least {}, got {}", name, least, value);
  };
  at_least("schedule.steps", double(o.schedule.steps), 1);
  at_least("schedule.warmup", double(o.schedule.warmup), 0);
  at_least("train.batch", double(o.train.batch), 1);
  at_least("train.accumulation", double(o.train.accumulation), 1);
  at_least("eval.every", double(o.eval.every), 0);
  at_least("eval.examples", double(o.eval.examples), 0);
  at_least("checkpoint.every", double(o.checkpoint.every), 0);
  at_least("checkpoint.keep", double(o.checkpoint.keep), 1);
  at_least("log.every", double(o.log.every), 1);
  at_least("optim.lr", o.optim.lr, 0);
  at_least("optim.clip", o.optim.clip, 0);
  for (const auto& [name, share] :
       {std::pair{"optim.beta1", o.optim.beta1},
        {"optim.beta2", o.optim.beta2},
        {"optim.ema", o.optim.ema}}) {
    HORNER_CHECK(share >= 0 && share < 1, "{} must lie in [0,1), got {}", name, share);
  }
  HORNER_CHECK(
      o.train.batch % o.train.accumulation == 0,
      "train.accumulation must divide train.batch = {}, got {}",
      o.train.batch,
      o.train.accumulation
  );
}

}  // namespace

TrainOptions resolve(TrainOptions o, const Task& task) {
  check_ranges(o);
  o.model.pattern = whole_specs(o.model.pattern);
  HORNER_CHECK(
      int64_t(o.model.pattern.size()) <= o.model.layers,
      "model.pattern names {} mixers for {} layers",
      o.model.pattern.size(),
      o.model.layers
  );
  const TaskShape shape = task.shape();
  o.model.vocabulary = shape.vocabulary;
  o.model.features = shape.features;
  o.model.classes = shape.classes;
  o.model.output = shape.rebuild ? "rebuild" : shape.regression ? "number" : "tokens";
  HORNER_CHECK(
      o.model.positions == 0 || o.model.positions >= shape.T,
      "model.positions must be 0 or at least the task's T = {}, got {}",
      shape.T,
      o.model.positions
  );
  if (!shape.causal) {
    for (std::string& mixer : o.model.pattern) mixer = both_directions(mixer);
  }
  for (const int64_t T : o.eval.lengths) {
    HORNER_CHECK(task.at_length(T), "eval.lengths: {} has no other length", o.task);
    HORNER_CHECK(
        o.model.positions == 0 || o.model.positions >= T,
        "eval.lengths: {} is more than model.positions = {}",
        T,
        o.model.positions
    );
  }
  for (const std::string& text : o.expect) Bound::parse(text);
  const at::Device device = find_device(o.device);
  if (o.device == "auto") o.device = device.is_cuda() ? "cuda" : "cpu";
  if (o.train.precision == "auto") o.train.precision = device.is_cuda() ? "bf16" : "fp32";
  return o;
}

}  // namespace horner
