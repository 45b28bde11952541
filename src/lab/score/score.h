// How well a language model knows a text, completes it, or chooses between answers; alone or against a second model.
//
//   text       -log p of every token, in windows of `context` tokens; each token is scored once
//   choices    the answer whose text is most likely after the question; "normalised": per character
//   pairs      of two sentences the good one is the likelier one
//   last word  of a passage: all of its tokens are the most likely ones
//
// Texts are cut into tokens as lm-evaluation-harness does, so that its numbers are ours: a question and its answer are
// encoded together, spaces at the end of a question belong to the answer, and a text without a question follows the
// token that begins (or else ends) a document.
#pragma once

#include <optional>

#include "lab/score/sequences.h"
#include "lab/statistics.h"

namespace horner {

struct ScoreOptions {
  std::vector<std::string> text, choices, pairs, last_word;
  std::string against;
  int64_t context = 0;
  int64_t stride = 0;
  int64_t limit = 0;
  int64_t batch_tokens = 8192;
  std::string device = "auto";

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("text", text, "texts, plain, gz or xz: how likely is each token?");
    visit("choices", choices, "JSON lines {context, choices, answer[, suffix]}: which answer?");
    visit("pairs", pairs, "tables (tsv) with columns sentence_good and sentence_bad: which one?");
    visit("last_word", last_word, "JSON lines {text}: is the last word the most likely one?");
    visit("against", against, "a second model: KL to it, same most likely token, differences");
    visit(
        "context",
        context,
        "tokens that a model reads at most; 0: 2048, or as many as it has positions"
    );
    visit("stride", stride, "new tokens of each window of a text; 0: all, windows do not overlap");
    visit("limit", limit, "windows, questions, pairs or passages of each file; 0: all");
    visit("batch_tokens", batch_tokens, "tokens that run together");
    visit("device", device, "auto, cpu, cuda or cuda:N");
  }
};

// The second model beside the first.
struct TextAgainst {
  double nats = 0, same_top = 0;
  Interval difference;  // nats of the model less those of the second, over windows
  Interval kl;          // over windows
};

struct PositionScore {
  int64_t from = 0, to = 0;  // positions in a window, [from, to)
  int64_t tokens = 0;
  double nats = 0;
  double kl = 0;  // with a second model
};

struct TextScore {
  std::string file;
  int64_t tokens = 0, bytes = 0, windows = 0;
  Interval nats;  // of a token; the interval is over windows
  double bits_per_byte = 0, top = 0;
  std::vector<PositionScore> by_position;
  std::optional<TextAgainst> against;
  double perplexity() const;
};

struct RightShare {
  double value = 0, error = 0;  // share of right answers, and its standard error
};

struct QuestionScore {
  std::string kind, file;  // kind: choices, pairs, last word
  int64_t questions = 0;
  std::vector<std::vector<double>> nats;  // -log p of each answer of each question
  RightShare right;
  std::optional<RightShare> normalised;                     // choices
  std::optional<double> chance, shortest, longest;          // what needs no model: choices
  std::optional<double> perplexity;                         // last word
  std::vector<std::pair<std::string, RightShare>> by_term;  // pairs: one per linguistics_term
  std::optional<RightShare> against;                        // right answers of the second model
  std::optional<Bootstrap> difference;                      // right answers, model less the second
};

struct ScoreResult {
  std::string model, against, device;
  int64_t context = 0;
  std::vector<TextScore> texts;
  std::vector<QuestionScore> questions;
  Json json() const;
};

// `tell(done, total, what)`: tokens of the file at hand.
using TellScore = std::function<void(size_t, size_t, const std::string& file)>;
ScoreResult score(const std::string& model, const ScoreOptions& options, const TellScore& tell);

}  // namespace horner
