// Examples at the end of a command's help. Each stands in the command's page in docs/, whose lines a test runs.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace horner {

inline const std::vector<std::string>& examples_of(const std::string& command) {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"list", {"./horner list --mixer gla", "./horner list --json"}},
      {"explain",
       {"./horner explain gla",
        "./horner explain deltanet --out runs/explain",
        "./horner explain --model runs/heads --T 64 --out runs/heads_explained"}},
      {"reproduce",
       {"./horner reproduce --list",
        "./horner reproduce inline metala --claim injectivity,conditions --out results"}},
      {"compare",
       {"./horner compare",
        "./horner compare softmax gla --task mqar:T=32,pairs=4,vocabulary=64 --model.D 16 "
        "--schedule.steps 20 --seeds 2 --speed_lengths 32",
        "./horner compare gla retnet --iso state --dry-run"}},
      {"report",
       {"./horner report runs/tiny", "./horner report runs/short --answers known_answers"}},
      {"verify", {"./horner verify", "./horner verify --mixer gla --device cpu"}},
      {"train",
       {"./horner train --task mqar:T=64,pairs=4,vocabulary=128 --model.D 32 --schedule.steps 5 "
        "--eval.examples 64 --out runs",
        "./horner train --task mqar --model.pattern taylor --model.D 256 --dry-run"}},
      {"convert",
       {"./horner convert runs/teacher --to hybrid:window=16,sinks=2,far=centres,count=16 "
        "--context "
        "128 --windows 2 --calibration 2 --out runs/student",
        "./horner convert runs/teacher --to hybrid:window=16,sinks=2 --tokens 20480 --batch 4 "
        "--length "
        "128 --context 128 --windows 2 --calibration 2 --out runs/trained"}},
      {"score", {"./horner score runs/small --text runs/small/config.toml --against runs/other"}},
      {"generate",
       {"./horner generate runs/small --prompt \"The\" --temperature 0 --tokens 40",
        "./horner generate runs/small --prompt \"Call \" --regex \"[0-9]{3}-[0-9]{4}\""}},
      {"serve",
       {"./horner serve smollm2-135m", "./horner serve runs/small --template chatml --port 8081"}},
      {"demo", {"./horner demo", "./horner demo --steps 4 --samples 2"}},
      {"get", {"./horner get smollm2-135m"}},
      {"theory",
       {"./horner theory --lengths 64,256,1024 --repeats 400 --training 16,64 --horizon 2"}},
      {"bench",
       {"./horner bench ops --op linear,scan --device cpu --repeats 3",
        "./horner bench train --mixer softmax --D 32 --T 32 --B 4 --steps 2 --device cpu"}},
      {"bench ops", {"./horner bench ops --op linear,scan --device cpu --repeats 3"}},
      {"bench train",
       {"./horner bench train --mixer softmax --D 32 --T 32 --B 4 --steps 2 --device cpu"}},
      {"bench generate",
       {"./horner bench generate runs/small --context 4,40 --steps 8 --kl_tokens 16 --rounds 1"}},
      {"bench runs",
       {"./horner bench runs --runs 1,2 --steps 60 --D 16 --B 4 --task "
        "mqar:T=16,pairs=2,vocabulary=32 --device cpu"}},
  };
  static const std::vector<std::string> none;
  const auto found = all.find(command);
  return found == all.end() ? none : found->second;
}

// What stands at the end of the help; empty: there is no example.
inline std::string examples_footer(const std::string& command) {
  std::string text;
  for (const std::string& line : examples_of(command))
    text += (text.empty() ? "Examples:\n  " : "\n  ") + line;
  return text;
}

}  // namespace horner
