// horner: reads the command line, runs one command, and turns any error into one line and an exit code.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <cstdio>

#include "cli/command.h"
#include "core/check.h"
#include "core/device.h"
#include "core/nearest.h"

namespace horner {
namespace {

// What CLI11 says of a name it does not know, with the nearest one that it does.
std::string unknown_argument(const CLI::App& app, const std::string& given) {
  std::vector<std::string> known;
  if (!given.starts_with("-")) {
    for (const Command& command : commands()) known.emplace_back(command.name);
    return unknown("command", given, known);
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    for (const std::string& name : option->get_snames()) known.push_back("-" + name);
  }
  return unknown("flag", given.substr(0, given.find('=')), known);
}

int report_error(const std::string& who, const std::string& message, int code) {
  fmt::print(stderr, "{}: {}\n", who, message.substr(0, message.find('\n')));
  return code;
}

int run_program(int argc, char** argv) {
  CLI::App app(
      "Softmax attention and everything that approximates it, as one recurrence.", "horner"
  );
  app.set_version_flag("--version", "horner 0.1.0");
  app.allow_extras();
  std::vector<std::pair<CLI::App*, std::function<int()>>> actions;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.about);
    sub->allow_extras();
    actions.emplace_back(sub, command.declare(*sub));
  }
  const CLI::App* chosen = &app;
  for (const auto& [sub, action] : actions) {
    if (argc > 1 && sub->get_name() == argv[1]) chosen = sub;
  }
  const std::string who = chosen == &app ? "horner" : "horner " + chosen->get_name();
  try {
    app.parse(argc, argv);
    const auto extras = app.remaining(true);
    if (!extras.empty()) throw UsageError("{}", unknown_argument(*chosen, extras.front()));
    for (const auto& [sub, action] : actions) {
      if (sub->parsed()) return action();
    }
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return report_error(who, error.what(), 2);
  } catch (const Error& error) {
    return report_error(who, error.what(), error.exit_code);
  } catch (const c10::OutOfMemoryError& error) {
    return report_error(who, error.what_without_backtrace(), 5);
  } catch (const c10::Error& error) {
    return report_error(who, error.what_without_backtrace(), 1);
  } catch (const std::exception& error) {
    return report_error(who, error.what(), 1);
  }
}

}  // namespace
}  // namespace horner

int main(int argc, char** argv) {
  horner::leave_out_amx();
  // Keep freed pages: returning them to the OS and faulting them in again costs 10 % of a step.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that is allowed
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  horner::command_line() = {argv + 1, argv + argc};
  horner::open_cuda();
  return horner::run_program(argc, argv);
}
