#include "train/resolve.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/check.h"
#include "core/device.h"
#include "model/formats/formats.h"
#include "model/size.h"
#include "train/expect.h"
#include "train/limits.h"

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
    HORNER_CHECK(
        std::isfinite(value) && value >= least, "{} must be at least {}, got {}", name, least, value
    );
  };
  at_least("schedule.steps", double(o.schedule.steps), 1);
  at_least("schedule.warmup", double(o.schedule.warmup), 0);
  at_least("train.batch", double(o.train.batch), 1);
  at_least("train.accumulation", double(o.train.accumulation), 1);
  at_least("train.sequence_parallel", double(o.train.sequence_parallel), 1);
  at_least("eval.every", double(o.eval.every), 0);
  at_least("eval.examples", double(o.eval.examples), 0);
  at_least("eval.batch", double(o.eval.batch), 0);
  at_least("checkpoint.every", double(o.checkpoint.every), 0);
  at_least("checkpoint.keep", double(o.checkpoint.keep), 1);
  at_least("log.every", double(o.log.every), 1);
  at_least("optim.lr", o.optim.lr, 0);
  at_least("optim.clip", o.optim.clip, 0);
  at_least("optim.weight_decay", o.optim.weight_decay, 0);
  at_least("schedule.final_lr", o.schedule.final_lr, 0);
  at_least("train.window.short_window", double(o.train.window.short_window), 1);
  at_least("train.window.long_window", double(o.train.window.long_window), 1);
  HORNER_CHECK(
      std::isfinite(o.optim.eps) && o.optim.eps > 0,
      "optim.eps must be above 0, got {}",
      o.optim.eps
  );
  HORNER_CHECK(
      std::isfinite(o.train.target), "train.target must be a number, got {}", o.train.target
  );
  for (const auto& [name, share] :
       {std::pair{"schedule.decay", o.schedule.decay},
        {"train.window.probability", o.train.window.probability},
        {"train.window.anneal", o.train.window.anneal}}) {
    HORNER_CHECK(share >= 0 && share <= 1, "{} must lie in [0,1], got {}", name, share);
  }
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

void check_place(const TrainOptions& o) {
  HORNER_CHECK(!o.out.empty(), "out must name a folder, as in runs; it is empty");
  const auto odd = [](unsigned char c) { return std::iscntrl(c) != 0; };
  HORNER_CHECK(
      std::none_of(o.name.begin(), o.name.end(), odd) &&
          (o.name.empty() || (o.name.front() != ' ' && o.name.back() != ' ')),
      "name must have no control character, and no blank at its ends, got {}",
      Json(o.name).dump(-1, ' ', true, Json::error_handler_t::replace)
  );
  HORNER_CHECK(
      o.name != "." && o.name != ".." && o.name.find('/') == o.name.npos &&
          o.name.find('\0') == o.name.npos,
      "name must be the name of a folder below out, without /, got '{}'",
      o.name
  );
}

}  // namespace

std::string task_of(const TrainOptions& o) {
  TypeSpec spec = TypeSpec::parse(o.task);
  if (o.from.empty() || spec.find("tokenizer")) return o.task;
  const std::vector<Description> settings = find_task(spec.name).describe();
  const bool takes = std::any_of(settings.begin(), settings.end(), [](const Description& d) {
    return d.name == "tokenizer";
  });
  const std::optional<Tokenizer> tokenizer = takes ? find_tokenizer(o.from) : std::nullopt;
  if (!tokenizer || tokenizer->kind() == "bytes") return o.task;
  spec.settings.push_back({"tokenizer", o.from});
  return spec.text();
}

TrainOptions resolve(TrainOptions o, const Task& task) {
  check_place(o);
  check_ranges(o);
  const bool adopts = !o.from.empty() && changed(o.model).empty();
  if (adopts) o.model = options_of_model(o.from);
  check_size(o.model);
  o.model.pattern = whole_specs(o.model.pattern);
  HORNER_CHECK(
      int64_t(o.model.pattern.size()) <= o.model.layers,
      "model.pattern names {} mixers for {} layers",
      o.model.pattern.size(),
      o.model.layers
  );
  const TaskShape shape = task.shape();
  const bool padded = adopts && shape.vocabulary < o.model.vocabulary;  // has room for more tokens
  if (!padded) o.model.vocabulary = shape.vocabulary;
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
    check_length(o.model, T, find_device(o.device), "eval.lengths");
    HORNER_CHECK(task.at_length(T), "eval.lengths: {} has no other length", o.task);
    HORNER_CHECK(
        o.model.positions == 0 || o.model.positions >= T,
        "eval.lengths: {} is more than model.positions = {}",
        T,
        o.model.positions
    );
  }
  for (const std::string& text : o.expect) check_score(Bound::parse(text).score, o, task);
  const at::Device device = find_device(o.device);
  if (o.device == "auto") o.device = device.is_cuda() ? "cuda" : "cpu";
  if (o.train.precision == "auto") o.train.precision = device.is_cuda() ? "bf16" : "fp32";
  return o;
}

}  // namespace horner
