// horner train: one run, from defaults, a TOML file and flags.
#include "train/train.h"

#include "cli/command.h"
#include "cli/flags.h"
#include "core/interrupt.h"
#include "core/number.h"
#include "core/toml.h"
#include "report/table.h"
#include "report/train.h"
#include "train/cost.h"
#include "train/distributed.h"
#include "train/resolve.h"

namespace horner {
namespace {

void print(const Cost& c) {
  Table table{{"what it would cost", ""}, {}};
  table.rows = {
      {"parameters", short_count(double(c.parameters))},
      {"state per sequence", short_bytes(double(c.state_bytes))},
      {"FLOP per token, forward", short_count(c.forward_flops_per_token)},
      {"FLOP per token, training", short_count(c.flops_per_token)},
      {"weights, gradients, moments", short_bytes(c.weight_bytes)},
      {"activations of a batch", short_bytes(c.activation_bytes)},
  };
  fmt::print("{}", table.text());
}

}  // namespace

std::function<int()> declare_train(CLI::App& app) {
  const auto options = std::make_shared<TrainOptions>();
  const auto json = std::make_shared<bool>(false), dry = std::make_shared<bool>(false),
             config = std::make_shared<bool>(false);
  add_config(app, *options);
  add_flags(app, *options);
  app.add_flag("--dry-run", *dry, "print parameters, state, FLOPs and memory, and train nothing");
  app.add_flag("--print-config", *config, "print every setting as it would be used, as TOML");
  app.add_flag("--json", *json, "the result, or the cost of a dry run, as JSON");
  return [=] {
    const std::shared_ptr<Task> task = make_task(options->task);
    if (*config) {
      const TrainOptions resolved = resolve(*options, *task);
      fmt::print("{}", format_toml(to_json(resolved)));
      return 0;
    }
    if (*dry) {
      const Cost cost = cost_of(resolve(*options, *task), *task);
      if (*json) {
        fmt::print("{}\n", cost.json().dump(2));
      } else {
        print(cost);
      }
      return 0;
    }
    const CatchInterrupt catch_interrupt;
    TrainResult result;
    {
      TrainProgress progress;
      result = train(*options, [&](const TrainTick& tick) { progress.show(tick); });
    }
    if (!first_process()) return 0;
    if (*json) {
      fmt::print("{}\n", result.json().dump(2));
    } else {
      fmt::print("{}", train_summary(result, *task));
    }
    return 0;
  };
}

}  // namespace horner
