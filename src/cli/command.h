// A command: its flags, and what runs once they are parsed. Parse, call lab, hand the result to report.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace horner {

struct Command {
  const char* name;
  const char* about;
  std::function<int()> (*declare
  )(CLI::App&);  // adds the flags; what it returns gives the exit code
};

// The words after the program's name, for the pages that say how they were made.
inline std::vector<std::string>& command_line() {
  static std::vector<std::string> words;
  return words;
}

std::function<int()> declare_compare(CLI::App&);
std::function<int()> declare_convert(CLI::App&);
std::function<int()> declare_bench(CLI::App&);
std::function<int()> declare_bench_train(CLI::App&);
std::function<int()> declare_bench_runs(CLI::App&);
std::function<int()> declare_bench_generate(CLI::App&);
std::function<int()> declare_demo(CLI::App&);
std::function<int()> declare_explain(CLI::App&);
std::function<int()> declare_generate(CLI::App&);
std::function<int()> declare_get(CLI::App&);
std::function<int()> declare_list(CLI::App&);
std::function<int()> declare_reproduce(CLI::App&);
std::function<int()> declare_report(CLI::App&);
std::function<int()> declare_score(CLI::App&);
std::function<int()> declare_serve(CLI::App&);
std::function<int()> declare_train(CLI::App&);
std::function<int()> declare_theory(CLI::App&);
std::function<int()> declare_verify(CLI::App&);

// THE list of commands.
inline const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {"demo",
       "softmax and a recurrent mixer learn a text in two minutes, and write",
       declare_demo},
      {"list", "the ops, mixers and tasks: equation, paper, settings, state size", declare_list},
      {"explain", "one mixer from inside, or every head of a trained model", declare_explain},
      {"reproduce", "a paper's claims as experiments, and whether they hold", declare_reproduce},
      {"compare",
       "mixers side by side on equal terms: scores, state, speed, a verdict, a page",
       declare_compare},
      {"report", "the page of a comparison again, or of runs beside each other", declare_report},
      {"verify",
       "the contract on this machine: every op, form and mixer against fp64",
       declare_verify},
      {"train", "one run: any pattern of mixers on any task; goes on by itself", declare_train},
      {"convert",
       "a trained softmax model with other mixers, and a certificate of what was lost",
       declare_convert},
      {"score",
       "how well a model knows a text or answers questions, alone or against another",
       declare_score},
      {"generate", "text from a model, as it is written", declare_generate},
      {"serve",
       "a model over HTTP: OpenAI's API, states to fork, a page to talk to it",
       declare_serve},
      {"get", "a model from the package index that pip is set to", declare_get},
      {"theory", "the large-prompt limit of softmax, against its closed forms", declare_theory},
      {"bench", "what ops and training steps cost, against limits and peers", declare_bench},
  };
  return list;
}

}  // namespace horner
