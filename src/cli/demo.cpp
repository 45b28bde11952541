// horner demo: softmax and a recurrent mixer learn a text in two minutes, write, and end on a page.
#include "lab/demo/demo.h"

#include <unistd.h>

#include "cli/command.h"
#include "cli/flags.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/origin.h"
#include "report/demo_page.h"
#include "report/progress.h"
#include "report/terminal.h"

namespace horner {
namespace {

void show_sample(const DemoOptions& o, const std::string& mixer, const DemoSample& sample) {
  fmt::print("\n--- {}, step {} of {}\n{}{}\n", mixer, sample.step, o.steps, o.prompt, sample.text);
  std::fflush(stdout);
}

// What will be done. The time is known for the usual models and text only.
std::string intention(const DemoOptions& o) {
  const DemoOptions usual;
  const bool timed = o.steps == usual.steps && o.mixers == usual.mixers && o.text.empty();
  return fmt::format(
      "{} {} {}, byte by byte: {} {} each{}.",
      fmt::join(o.mixers, " and "),
      o.mixers.size() == 1 ? "learns" : "learn",
      o.text.empty() ? "Shakespeare (examples/text/shakespeare.txt)" : o.text,
      o.steps,
      o.steps == 1 ? "step" : "steps",
      timed ? ", about two minutes on two cores" : ""
  );
}

int run(const DemoOptions& o, bool json) {
  const CatchInterrupt catch_interrupt;
  check_demo(o);
  if (!json) fmt::print("{}\n", wrapped(intention(o), terminal_width(STDOUT_FILENO)));
  std::fflush(stdout);
  DemoResult result;
  {
    std::optional<Progress> progress;
    result = demo(
        o,
        "/proc/self/exe",
        [&](const std::string& mixer, const DemoSample& sample) {
          if (isatty(STDERR_FILENO)) show_status("\r\033[K");
          if (!json) show_sample(o, mixer, sample);
        },
        [&](const RunsTick& tick) {
          if (!progress) progress.emplace(size_t(tick.steps), "steps");
          progress->at(size_t(std::min(tick.steps_done, tick.steps)), "training", tick.what);
        }
    );
  }
  Page page = demo_page(result);
  page.origin = origin(command_line(), "0", "CPU", "fp32");
  write_file(o.out + "/demo.json", result.json().dump(1) + "\n");
  write_file(o.out + "/demo.html", html(page));
  if (json) {
    fmt::print("{}\n", result.json().dump(2));
    return 0;
  }
  fmt::print(
      "\n{}\n\n{}/demo.html shows it. To try next:\n",
      wrapped(demo_verdict(result), terminal_width(STDOUT_FILENO)),
      o.out
  );
  for (const std::string& command : demo_next(result)) fmt::print("  {}\n", command);
  return 0;
}

}  // namespace

std::function<int()> declare_demo(CLI::App& app) {
  const auto options = std::make_shared<DemoOptions>();
  const auto json = std::make_shared<bool>(false);
  add_flags(app, *options);
  app.add_flag("--json", *json, "the result as JSON, at the end");
  return [=] { return run(*options, *json); };
}

}  // namespace horner
