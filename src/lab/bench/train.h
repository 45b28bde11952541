// What a training step costs: forward, backward, clipping and AdamW of a small language model. In the same run it is compared
// with the same model in PyTorch (tools/bench_train_peer.py), eager and compiled, if that has the mixer.
#pragma once

#include <functional>

#include "core/options.h"
#include "lab/bench/profile.h"

namespace horner {

struct BenchTrainOptions {
  std::vector<std::string> mixer = {"softmax", "linear", "taylor"};
  std::vector<int64_t> D = {64, 128, 256};
  int64_t T = 256;
  int64_t B = 32;
  int64_t heads = 4;
  int64_t layers = 2;
  int64_t mlp_dim = 0;
  int64_t vocabulary = 256;
  int64_t steps = 10;
  int64_t rounds = 2;
  std::string device = "auto";
  std::string precision = "auto";
  std::string peer;
  bool compile = false, equal = false, profile = false;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("mixer", mixer, "mixers, or mixer:settings; the peer has softmax, linear and taylor");
    visit("D", D, "model dims");
    visit("T", T, "tokens of a sequence");
    visit("B", B, "sequences of a step");
    visit("heads", heads, "heads H");
    visit("layers", layers, "layers L");
    visit("mlp_dim", mlp_dim, "inner width of the mlp; 0: 8 D / 3 rounded up to 64");
    visit("vocabulary", vocabulary, "tokens");
    visit("steps", steps, "steps that are timed, after three that are not");
    visit("rounds", rounds, "turns that both take, one after the other; each one's fastest counts");
    visit("device", device, "auto, cpu, cuda or cuda:N");
    visit("precision", precision, "auto: bf16 on a GPU", {"auto", "fp32", "bf16"});
    visit("peer", peer, "Python with torch, which runs tools/bench_train_peer.py; empty: no peer");
    visit("compile", compile, "the peer also runs compiled by torch.compile, which takes minutes");
    visit("equal", equal, "every mixer has so many layers that its model is as large as the first");
    visit("profile", profile, "also the time of each part of a step and of each kernel");
  }
};

struct BenchTrainRow {
  std::string mixer;
  int64_t D = 0, layers = 0, parameters = 0;
  double milliseconds = 0, tokens_per_second = 0;         // median of the fastest round
  double memory = 0;                                      // peak bytes, of a GPU
  double graph_milliseconds = 0;                          // of a step in a row of replays; 0: none
  std::string graph_failure = {};                         // why there are no replays
  double peer_milliseconds = 0, peer_memory = 0;          // 0: no peer
  double compiled_milliseconds = 0, compiled_memory = 0;  // of the peer; 0: not asked for
  StepProfile profile = {};                               // empty: not asked for
  std::string failure = {};                               // why there is no time
};
struct BenchTrainReport {
  std::string device;
  BenchTrainOptions options;
  std::vector<BenchTrainRow> rows;
  Json json() const;
};
// Tells what comes next, with the rows so far.
BenchTrainReport bench_train(
    const BenchTrainOptions& options,
    const std::function<void(const std::string&, const BenchTrainReport&)>& tell = {}
);

}  // namespace horner
