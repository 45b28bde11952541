#include "train/resolve.h"

#include "core/check.h"
#include "core/device.h"
#include "train/expect.h"

namespace horner {
namespace {

// "softmax:heads=2" as "softmax:heads=2,causal=false" where the mixer has that setting and the text
// does not give it.
std::string both_directions(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const std::string settings = colon == std::string::npos ? "" : text.substr(colon + 1);
  for (const std::string_view given : {"causal=", ",causal="}) {
    if (given[0] == ',' ? settings.find(given) != std::string::npos : settings.starts_with(given))
      return text;
  }
  for (const Description& setting : find_mixer(name).describe()) {
    if (setting.name == "causal")
      return fmt::format("{}:{}{}causal=false", name, settings, settings.empty() ? "" : ",");
  }
  return text;
}

}  // namespace

std::vector<std::string> whole_mixers(const std::vector<std::string>& items) {
  std::vector<std::string> pattern;
  for (const std::string& item : items) {
    const bool settings = item.find('=') < item.find(':');
    if (settings && !pattern.empty()) {
      pattern.back() += (pattern.back().find(':') == std::string::npos ? ":" : ",") + item;
    } else {
      pattern.push_back(item);
    }
  }
  return pattern;
}

TrainOptions resolve(TrainOptions o, const Task& task) {
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
  o.model.pattern = whole_mixers(o.model.pattern);
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
  for (const std::string& text : o.expect) check_expectation(text);
  const at::Device device = find_device(o.device);
  if (o.device == "auto") o.device = device.is_cuda() ? "cuda" : "cpu";
  if (o.train.precision == "auto") o.train.precision = device.is_cuda() ? "bf16" : "fp32";
  return o;
}

}  // namespace horner
