// Sampling: the next token from the logits of a model.
//
//   x_i    = logit_i / r if logit_i > 0, else logit_i r    for tokens i that occurred, r = repetition_penalty (arXiv:1909.05858)
//   x_i   -= presence_penalty [c_i > 0] + frequency_penalty c_i,   c_i: how often the text has token i, the prompt left out
//   x_i   += bias_i;  x_i = -inf for tokens that a mask does not allow
//   p      = softmax(x / temperature) over the top_k largest x
//   kept   : the fewest largest p that sum to top_p; of those, p_i >= min_p max p
//   token  = the first kept i, in the order of ids, with sum_{j<=i} p_j > u sum_j p_j,   u = Philox(seed, position)
//
// Temperature 0 takes the largest x. Of equal x the lowest id counts as the larger one. u depends only on (seed, position), so a
// request gets the same text alone and in any batch. Log-probabilities are those of the model: log softmax(logits).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace horner {

struct SamplingOptions {
  double temperature = 0.8;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::vector<std::string> logit_bias;
  int64_t seed = 0;
  int64_t logprobs = -1;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("temperature", temperature, "below 1: likely tokens become likelier; 0: the likeliest");
    visit("top_k", top_k, "sample from this many likeliest tokens; 0: from all");
    visit("top_p", top_p, "sample from the fewest likeliest tokens with this share; 1: from all");
    visit("min_p", min_p, "leave out tokens less likely than this times the likeliest");
    visit(
        "repetition_penalty", repetition_penalty, "above 1: tokens that occurred are less likely"
    );
    visit("presence_penalty", presence_penalty, "taken off the logits of tokens that the text has");
    visit("frequency_penalty", frequency_penalty, "the same, once for each time");
    visit("logit_bias", logit_bias, "token id:number, added to its logit; id:-inf forbids it");
    visit("seed", seed, "of the random numbers; the same seed gives the same text");
    visit(
        "logprobs",
        logprobs,
        "report log-probabilities: 0: of each token; n: also of the n best; -1: none"
    );
  }
};

struct TokenLogprob {
  int32_t token = 0;
  double logprob = 0;
};

struct SampledToken {
  int32_t token = 0;
  double logprob = 0;             // if logprobs >= 0
  std::vector<TokenLogprob> top;  // the `logprobs` likeliest, in decreasing order
};

// u of a position: uniform in [0, 1), 53 bits.
double sampling_uniform(uint64_t seed, uint64_t position);

// log softmax(logits) of one token, and of the n likeliest in decreasing order.
double logprob_of(std::span<const float> logits, int32_t token);
std::vector<TokenLogprob> likeliest(std::span<const float> logits, int64_t n);

class TokenSampler {
 public:
  // UsageError for a setting outside its range.
  explicit TokenSampler(const SamplingOptions& options);
  // Whether its token is the one with the largest logit, and nothing else is asked.
  bool takes_the_likeliest() const;

  // The token after `before`. RunError if no token is possible: all logits are -inf, or one is NaN.
  // The text begins where the sampler is first asked: tokens before that are its prompt.
  // `allowed`: a bit for each token, tokens beyond it are not allowed; empty: all are. If it leaves no token, the token is -1.
  SampledToken sample(
      std::span<const float> logits,
      std::span<const int32_t> before,
      std::span<const uint64_t> allowed = {}
  );

 private:
  struct Candidate {
    float x;
    int32_t id;
    double weight;  // e^{(x - max x) / temperature}
  };
  void penalise(std::span<const float> logits, std::span<const int32_t> before);
  template <class F>
  void for_possible(std::span<const uint64_t> allowed, F&& f) const;
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  int32_t draw(uint64_t position);
  void take_off(std::span<const int32_t> text);

  SamplingOptions o_;
  std::vector<std::pair<int32_t, float>> bias_;
  std::vector<float> x_;  // (vocabulary); kept between calls, so that a token allocates nothing
  std::vector<Candidate> kept_;
  std::vector<bool> occurred_;   // (vocabulary)
  std::optional<size_t> begin_;  // of the text
};

}  // namespace horner
