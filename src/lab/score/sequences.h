// Log-probabilities of tokens, from which every score is made.
//
//   nats_t = -log p(x_t | x_1 .. x_{t-1})
//   kl_t   = sum over tokens y of p'(y) (log p'(y) - log p(y)),  p' = the model that is compared with
#pragma once

#include <functional>
#include <vector>

#include "model/model.h"

namespace horner {

struct Sequence {
  std::vector<int64_t> tokens;
  int64_t first = 1;  // tokens[first], tokens[first + 1], .. are scored; the others are only read
  int64_t scored() const { return int64_t(tokens.size()) - first; }
};

// One number per scored token.
struct TokenScores {
  std::vector<double> nats;
  std::vector<bool> top;  // whether the token is the most likely one
  double sum() const;     // of nats
  bool all_top() const;
};

struct SequenceScores {
  TokenScores model, against;  // against: empty without a second model
  std::vector<double> kl;
  std::vector<bool> same_top;  // whether both models have the same most likely token
};

using TellScored = std::function<void(size_t done, size_t total)>;  // in tokens that are read

// Sequences of similar length run together, padded at the end, which causal models do not see. A batch has at most
// `batch_tokens` tokens, or one sequence. Without `against` (null) only `model` is scored.
std::vector<SequenceScores> score_sequences(
    Model& model,
    Model* against,
    const std::vector<Sequence>& sequences,
    int64_t batch_tokens,
    at::Device device,
    const TellScored& tell
);

}  // namespace horner
