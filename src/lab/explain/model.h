// Every attention head of a trained model while it reads a text: how far it looks, how sharply, and what a recurrence could keep
// of it. Layers run one after the other, so the memory is that of one layer and of the (T,T) scores of one head.
#pragma once

#include <functional>

#include "lab/explain/heads.h"

namespace horner {

struct ModelExplainOptions {
  std::string model;
  std::string text;  // empty: the text of the repository
  int64_t T = 512;
  int64_t pieces = 2;
  int64_t window = 64;
  int64_t sinks = 4;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("model", model, "MODEL: every attention head of a trained model");
    visit("pieces", pieces, "of --model: pieces of T tokens of the text that it reads");
    visit("window", window, "of --model: last tokens whose share of the weight is told");
    visit("sinks", sinks, "of --model: first tokens that count with them");
  }
};

// The head that does something most of all heads, with its weights while it reads the first piece.
struct TellingHead {
  std::string role;  // what it does most
  HeadMeasures measures;
  std::vector<double> map;  // (T,T)
};

struct ModelExplanation {
  std::string model, architecture, text;
  int64_t layers = 0, T = 0, pieces = 0;
  Sight sight;
  std::vector<HeadMeasures> heads;  // layer by layer
  std::vector<TellingHead> telling;
  std::vector<std::string> skipped;  // layers that are not causal softmax attention: "3: gla"

  // Mean over the heads, as one head.
  HeadMeasures mean() const;
  Json json() const;
};

using TellLayer = std::function<void(int64_t layer, int64_t layers)>;
ModelExplanation explain_model(const ModelExplainOptions& options, const TellLayer& tell);

}  // namespace horner
