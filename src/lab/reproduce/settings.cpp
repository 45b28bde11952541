// The table "the paper's setting | ours": the paper's as the claim states it, ours from the arms themselves.
#include <algorithm>
#include <map>

#include "core/check.h"
#include "lab/reproduce/budget.h"
#include "tasks/task.h"

namespace horner {
namespace {

// What the arms have, each value once.
template <class Text>
std::string of_arms(const std::vector<Arm>& arms, Text text) {
  std::vector<std::string> list;
  for (const Arm& arm : arms) {
    const std::string value = text(arm.options);
    if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
  }
  return fmt::format("{}", fmt::join(list, " | "));
}

std::string model_of(const TrainOptions& o) {
  std::string text = fmt::format(
      "{} layer{}, D = {}, {}, norm {}",
      o.model.layers,
      o.model.layers == 1 ? "" : "s",
      o.model.D,
      o.model.mlp == "none" ? "no MLP" : "MLP " + o.model.mlp,
      o.model.norm
  );
  if (o.model.tied) text += ", tied";
  if (o.model.dropout > 0) text += fmt::format(", dropout {:g}", o.model.dropout);
  if (o.model.logit_cap > 0) text += fmt::format(", logit cap {:g}", o.model.logit_cap);
  return text;
}

struct Source {
  int64_t T = 0, size = 0;  // size 0: it is made of files of this machine
};

// Many arms ask about few tasks.
const Source& source_of(const std::string& name) {
  static std::map<std::string, Source> known;
  const auto [found, missing] = known.try_emplace(name);
  if (!missing) return found->second;
  try {
    const std::shared_ptr<Task> task = make_task(name);
    if (task->sources().empty()) found->second = {task->shape().T, task->size(Split::train)};
  } catch (const DataError&) {  // its files are not here
  }
  return found->second;
}

// How much of the data a run reads; of a generator also how often. What depends on files of this machine is not said.
std::string data_of_run(const TrainOptions& o) {
  const double examples = double(o.schedule.steps * o.train.batch);
  const Source& source = source_of(o.task);
  std::string text = fmt::format("{:.3g} M examples", examples / 1e6);
  if (source.size == 0) return text;
  text += fmt::format(" of {} tokens", source.T);
  if (source.size == kEndless) return text + ", none twice";
  return text + fmt::format(", {:.2g} epochs", examples / double(source.size));
}

std::string optimiser_of(const TrainOptions& o) {
  return fmt::format(
      "AdamW ({:g}, {:g}), weight decay {:g}, {}",
      o.optim.beta1,
      o.optim.beta2,
      o.optim.weight_decay,
      o.optim.clip > 0 ? fmt::format("clip {:g}", o.optim.clip) : "no clip"
  );
}

std::string steps_of(const TrainOptions& o) {
  std::string text = fmt::format(
      "{} of {} examples, warm-up {}, {}",
      o.schedule.steps,
      o.train.batch,
      o.schedule.warmup,
      o.schedule.kind
  );
  if (o.schedule.final_lr > 0) text += fmt::format(" to {:g}", o.schedule.final_lr);
  if (o.train.target > 0) text += fmt::format("; ends at validation {:g}", o.train.target);
  return text;
}

std::string rates_of(const Claim& claim, const TrainOptions& o) {
  std::vector<double> rates = claim.protocol.rates;
  if (rates.empty()) rates = {1};
  for (double& rate : rates) rate *= o.optim.lr;
  std::string text = fmt::format("{:.3g}", fmt::join(rates, ", "));
  if (rates.size() > 1)
    text += claim.protocol.rate_each_seed ? "; best of each seed" : "; best of seed 500";
  return rates.size() > 2 ? text + ", halved after a quarter" : text;
}

std::string seeds_of(const Protocol& protocol) {
  const std::vector<int64_t> looks = protocol.looks();
  if (looks.size() == 1) return fmt::format("{}", looks[0]);
  return fmt::format("{}, then pairs up to {}", looks.front(), looks.back());
}

std::string tests_of(const TrainOptions& o) {
  std::string text = fmt::format("{} examples", o.eval.examples);
  if (!o.eval.lengths.empty())
    text += fmt::format(", also {} tokens long", fmt::join(o.eval.lengths, ", "));
  return text;
}

// Every value that the arms themselves tell.
std::vector<Setting> of_struct(const Claim& claim, Effort scale) {
  if (claim.arms == nullptr) return {};
  const std::vector<Arm> arms = claim.arms(scale);
  const auto row = [&](const char* what, auto text) {
    return Setting{what, "", of_arms(arms, text)};
  };
  return {
      row("task", [](const TrainOptions& o) { return o.task; }),
      row("data", data_of_run),
      row("model", model_of),
      row("positions",
          [](const TrainOptions& o) {
            return o.model.positions > 0 ? fmt::format("learned, {}", o.model.positions)
                                         : std::string("the mixer's own");
          }),
      row("start", [](const TrainOptions& o) { return o.model.init; }),
      row("steps", steps_of),
      row("optimiser", optimiser_of),
      row("learning rates", [&](const TrainOptions& o) { return rates_of(claim, o); }),
      row("test", tests_of),
      {"seeds", "", seeds_of(claim.protocol)}};
}

}  // namespace

std::vector<Setting> settings_of(const Claim& claim, Effort scale) {
  std::vector<Setting> table = of_struct(claim, scale);
  for (const Setting& s : claim.settings) {
    const auto row = std::find_if(table.begin(), table.end(), [&](const Setting& own) {
      return own.what == s.what;
    });
    if (row != table.end())
      row->paper = s.paper;
    else
      table.push_back({s.what, s.paper, s.ours.empty() ? "in the arms' column `mixer`" : s.ours});
  }
  if (scale == Effort::gpu && claim.arms != nullptr) {
    const std::vector<int64_t> looks = claim.protocol.looks();
    table.push_back(
        {"cost",
         "",
         fmt::format(
             "{} of one H200 (estimated), at the last look {:.1f}",
             words(budget(claim, scale, looks.front())),
             budget(claim, scale, looks.back()).minutes()
         )}
    );
  }
  for (Setting& s : table) {
    if (s.paper.empty()) s.paper = s.what == "cost" ? "-" : "not stated";
  }
  return table;
}

}  // namespace horner
