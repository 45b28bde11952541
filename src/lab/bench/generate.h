// How fast a model reads prompts and writes text, and how far its logits are from the model in fp32; on a CPU also beside
// llama.cpp on the same GGUF file in the same run (tools/bench_generate_peer.py), on a GPU and for several streams by what
// `horner serve` runs (engine/load.h).
//
//   KL(fp32 || x) in nats, same top-1: over the first tokens of a text, each fed alone
//   prompt    tokens/s of a prompt of so many tokens
//   text      tokens/s at this context: the median of the steps after the prompt
//
// Both take turns, one round after the other; of each number the fastest round counts.
#pragma once

#include <functional>

#include "core/options.h"
#include "model/formats/formats.h"

namespace horner {

struct BenchGenerateOptions {
  std::string model;
  std::vector<std::string> text;
  std::vector<int64_t> context = {16, 1024, 4096, 8064};
  std::vector<int64_t> streams = {1};
  std::string device = "auto";
  int64_t steps = 64;
  int64_t kl_tokens = 256;
  int64_t rounds = 2;
  std::string weights = "auto";
  std::vector<std::string> beside;
  std::string peer;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("text", text, "files whose beginning is read; the text repeats where it is too short");
    visit("context", context, "tokens of the prompts");
    visit("streams", streams, "texts at a time; other than 1: without a peer");
    visit("device", device, "auto, cpu, cuda or cuda:N");
    visit("steps", steps, "tokens that are written after each prompt");
    visit("kl_tokens", kl_tokens, "tokens over which the logits are compared with fp32");
    visit("rounds", rounds, "turns that both take, one after the other; each one's fastest counts");
    visit("weights", weights, "as the file has them, or", {"auto", "fp32", "bf16", "q8", "q4"});
    visit(
        "beside",
        beside,
        "other weights whose KL to fp32 is measured too, on a CPU: fp32,bf16,q8,q4"
    );
    visit("peer", peer, "Python with llama-cpp-python, for GGUF files; empty: no peer");
  }
};

struct GenerateRow {
  int64_t context = 0;
  double prompt = 0, text = 0;            // tokens/s
  double bytes = 0;                       // that a token reads: weights and state
  double state_bytes = 0;                 // that a stream of so many tokens keeps
  double peer_prompt = 0, peer_text = 0;  // 0: no peer
};
struct Fidelity {
  double kl = 0, same_top1 = 0, nats = 0;  // nats: mean loss of the text's own tokens
};
// All streams of one length; a step writes a token of each.
struct StreamsRow {
  int64_t streams = 0, context = 0;
  bool invariant = false;       // the same bits alone and beside others
  double prompt = 0, text = 0;  // tokens/s: of one prompt, of all texts together
  double bytes = 0;             // that a step reads: weights and states
  double state_bytes = 0;       // of one stream
};
struct BenchGenerateReport {
  BenchGenerateOptions options;
  std::string device, decoder, peer_version;
  int64_t threads = 0;
  double load_seconds = 0;             // file to decoder
  double memory = 0, peer_memory = 0;  // most resident bytes
  double weight_bytes = 0;             // that each token reads
  double read_rate =
      0;  // bytes/s that all threads together read of a large array; a GPU: of a copy
  Fidelity own, peer;
  struct Beside {
    std::string weights;
    double bytes;  // that each token reads
    Fidelity fidelity;
  };
  std::vector<Beside> beside;
  double fp32_nats = 0;
  std::vector<GenerateRow> rows;
  std::vector<StreamsRow> streams;  // instead of rows, on a GPU or for several streams
  bool exact() const;               // KL is no worse than the peer's, or below 0.03 without one
  Json json() const;
};

// Tokens of the text, again and again until there are n.
std::vector<int32_t> bench_tokens(
    const BenchGenerateOptions& options, const LoadedModel& model, int64_t n
);
double cpu_read_rate();  // bytes/s
// Logits (n,vocabulary) of tokens against log-probabilities (n,vocabulary) of fp32.
Fidelity fidelity_of(
    const at::Tensor& log_p, const at::Tensor& logits, const std::vector<int32_t>& tokens
);

BenchGenerateReport bench_streams(
    const BenchGenerateOptions& options, const std::function<void(const std::string&)>& say
);
BenchGenerateReport bench_generate(
    const BenchGenerateOptions& options, const std::function<void(const std::string&)>& tell = {}
);

}  // namespace horner
