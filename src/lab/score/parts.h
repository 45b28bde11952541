// What the kinds of scores share: the models that are asked, and how a text becomes a sequence.
#pragma once

#include "io/tokenizer.h"
#include "lab/score/score.h"

namespace horner {

struct Asked {
  std::shared_ptr<Model> model, against;  // against: null without a second model
  Tokenizer tokenizer;
  int64_t context;  // tokens
  at::Device device = at::kCPU;
  const ScoreOptions& options;

  std::vector<SequenceScores> scores(
      const std::vector<Sequence>& sequences, const std::string& file, const TellScore& tell
  ) const;
  // The token that stands before a text without a question, if there is one.
  std::optional<int64_t> prefix() const;
  // How many of `all` things of a file are scored.
  size_t limited(size_t all) const;
};

// `answer` after `question`; at most `context` tokens are read, the last ones.
Sequence answer_after(const Asked& asked, std::string question, std::string answer);

TextScore score_text(const Asked& asked, const std::string& path, const TellScore& tell);
// Of tokens, the first of which is only read; `name` stands for the file.
TextScore score_tokens(
    const Asked& asked,
    const std::vector<int64_t>& tokens,
    const std::string& name,
    const TellScore& tell
);
QuestionScore score_choices(const Asked& asked, const std::string& path, const TellScore& tell);
QuestionScore score_pairs(const Asked& asked, const std::string& path, const TellScore& tell);
QuestionScore score_last_word(const Asked& asked, const std::string& path, const TellScore& tell);

}  // namespace horner
