// A command: its flags, and what runs once they are parsed. Parse, call lab, hand the result to report.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

namespace horner {

struct Command {
  const char* name;
  const char* about;
  std::function<int()> (*declare
  )(CLI::App&);  // adds the flags; what it returns gives the exit code
};

std::function<int()> declare_bench(CLI::App&);
std::function<int()> declare_bench_train(CLI::App&);
std::function<int()> declare_explain(CLI::App&);
std::function<int()> declare_list(CLI::App&);
std::function<int()> declare_train(CLI::App&);
std::function<int()> declare_verify(CLI::App&);

// THE list of commands.
inline const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {"list", "the ops and mixers: equation, paper, settings, state size", declare_list},
      {"explain", "one mixer: equation, parameters, state, transition, map", declare_explain},
      {"verify",
       "the contract on this machine: every op, form and mixer against fp64",
       declare_verify},
      {"train", "one run: any pattern of mixers on any task; goes on by itself", declare_train},
      {"bench", "what ops and training steps cost, against limits and peers", declare_bench},
  };
  return list;
}

}  // namespace horner
