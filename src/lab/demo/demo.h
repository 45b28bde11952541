// The demonstration: softmax and a recurrent mixer learn the same text side by side, and write.
//
// Both are runs of `horner train`, each a program with half of the cores. Samples are written from their checkpoints as they
// come. Everything lies in one folder, so the same command goes on after an interruption.
#pragma once

#include "lab/runs.h"

namespace horner {

struct DemoOptions {
  std::string out = "runs/demo";
  std::string text;
  std::vector<std::string> mixers = {"softmax", "gated_deltanet"};
  int64_t steps = 600;
  int64_t samples = 5;
  std::string prompt = "ROMEO:";

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("out", out, "folder of the runs and of demo.html");
    visit("text", text, "text to learn; empty: examples/text/shakespeare.txt");
    visit("mixers", mixers, "mixers to train, mixer or mixer:settings");
    visit("steps", steps, "training steps of each");
    visit("samples", samples, "how often each writes a sample while it learns");
    visit("prompt", prompt, "how samples begin");
  }
};

struct DemoSample {
  int64_t step = 0;
  std::string text;  // after the prompt
};

// How fast the trained model writes after T tokens, and the bytes of its state there.
struct DemoSpeed {
  int64_t T = 0;
  int64_t state_bytes = 0;
  double tokens_per_second = 0;
};

struct DemoMixer {
  std::string mixer;
  TrainResult result;
  std::vector<DemoSample> samples;
  std::vector<DemoSpeed> speeds;
  std::string computed_by = {};  // what writes so fast: "fp32, CPU, avx512"
};

struct DemoResult {
  DemoOptions options;
  std::vector<DemoMixer> mixers;
  std::string excerpt = {};  // the first bytes of the text
  Json json() const;
};

// Refuses what no run can be made of, before anything is written or said.
void check_demo(const DemoOptions& options);

// `told` gets a sample when a checkpoint has one; `tell` the progress.
using DemoTold = std::function<void(const std::string& mixer, const DemoSample& sample)>;
DemoResult demo(
    const DemoOptions& options,
    const std::string& program,
    const DemoTold& told,
    const RunsTell& tell
);

}  // namespace horner
