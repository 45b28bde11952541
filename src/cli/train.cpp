// horner train: one run, from defaults, a TOML file and flags.
#include "train/train.h"

#include <cmath>

#include "cli/command.h"
#include "cli/flags.h"
#include "core/interrupt.h"
#include "core/number.h"
#include "core/toml.h"
#include "report/terminal.h"
#include "report/train.h"
#include "train/distributed.h"
#include "train/duration.h"
#include "train/expect.h"
#include "train/limits.h"
#include "train/resolve.h"

namespace horner {
namespace {

void print(const Cost& c, const Duration& d) {
  const auto known = [](double x, std::string (*text)(double)) {
    return std::isnan(x) ? "not measured: one example does not fit here" : text(x);
  };
  Table table{{"what it would cost", ""}, {}};
  table.rows = {
      {"parameters", short_count(double(c.parameters))},
      {"state per sequence", short_bytes(double(c.state_bytes))},
      {"FLOP per token, forward", known(c.forward_flops_per_token, short_count)},
      {"FLOP per token, training", known(c.flops_per_token, short_count)},
      {"weights, gradients, moments", short_bytes(c.weight_bytes)},
      {"activations of a batch", known(c.activation_bytes, short_bytes)},
      {"time of a step",
       d.why.empty() ? fmt::format("{:.3g} ms here, now", 1e3 * d.step) : "not measured: " + d.why},
      {"time of the run",
       d.why.empty() ? "about " + short_time(d.total) : "not measured: " + d.why},
  };
  if (c.processes > 1) {
    const std::string each = fmt::format("each of {} processes: ", c.processes);
    table.rows.insert(
        table.rows.begin() + 6,
        {{each + "weights, gradients, moments", short_bytes(c.weight_bytes_each)},
         {each + "activations", known(c.activation_bytes_each, short_bytes)}}
    );
  }
  fmt::print("{}", fitted(table));
}

}  // namespace

std::function<int()> declare_train(CLI::App& app) {
  const auto options = std::make_shared<TrainOptions>();
  const auto json = std::make_shared<bool>(false), dry = std::make_shared<bool>(false),
             config = std::make_shared<bool>(false);
  add_config(app, *options);
  add_flags(app, *options);
  app.add_flag(
      "--dry-run", *dry, "print parameters, state, FLOPs, memory and time, and train nothing"
  );
  const auto processes = std::make_shared<int64_t>(0);
  app.add_option(
         "--processes",
         *processes,
         "of --dry-run: how many share the run out; 0: as many as torchrun has started"
  )
      ->check(CLI::Range(0, 1 << 20));
  app.add_flag("--print-config", *config, "print every setting as it would be used, as TOML");
  app.add_flag("--json", *json, "the result, or the cost of a dry run, as JSON");
  return [=] {
    options->task = task_of(*options);
    const std::shared_ptr<Task> task = make_task(options->task);
    if (*config) {
      const TrainOptions resolved = resolve(*options, *task);
      fmt::print("{}", format_toml(to_json(resolved)));
      return 0;
    }
    if (*dry) {
      if (!first_process()) return 0;
      const TrainOptions resolved = resolve(*options, *task);
      const int64_t world = *processes > 0 ? *processes : processes_here();
      check_processes(resolved, task->shape(), world > 1 ? world : 0);
      const Cost cost = cost_of(resolved, *task, world);
      const Duration duration = duration_of(resolved, *task, cost);
      if (*json) {
        Json all = cost.json();
        all.update(duration.json());
        fmt::print("{}\n", all.dump(2));
      } else {
        print(cost, duration);
      }
      return 0;
    }
    const CatchInterrupt catch_interrupt;
    TrainResult result;
    {
      TrainProgress progress(task->metric());
      result = train(*options, [&](const TrainTick& tick) { progress.show(tick); });
    }
    if (!first_process()) return 0;
    if (*json) {
      fmt::print("{}\n", result.json().dump(2));
    } else {
      fmt::print("{}", train_summary(result, *task));
    }
    for (const Answer& answer : answers(result)) {
      if (!answer.holds) throw ThresholdError("expected {}: it does not hold", answer.expected);
    }
    return 0;
  };
}

}  // namespace horner
