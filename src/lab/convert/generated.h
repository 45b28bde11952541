// What a converted model writes: beside its teacher's text, and whether it finds a number in a long text.
//
//   generated   both models go on from the same prompts, always with the likeliest token
//   needle      "The secret number is 4817." stands somewhere in a text of T tokens, which ends with "The secret number is"
#pragma once

#include <optional>

#include "model/formats/formats.h"

namespace horner {

struct GeneratedMatch {
  int64_t texts = 0, prompt = 0, tokens = 0;  // tokens: that each text has
  double same_texts = 0;                      // share that are equal to the last token
  double prefix = 0;                          // tokens before the first difference, mean
  Json json() const;
};

struct NeedleRecall {
  int64_t T = 0, asked = 0;
  double student = 0, teacher = 0;  // share of numbers that were found
  Json json() const;
};

// (n,count): the likeliest tokens after prompts (n,P).
at::Tensor greedy(Model& model, const at::Tensor& prompts, int64_t count);

// Prompts of P tokens from all over `text`; both models are on one device.
GeneratedMatch generated_match(
    Model& student, Model& teacher, const std::vector<int64_t>& text, int64_t texts, int64_t P
);

// Nothing if `text` is shorter than T. The places of the numbers are spread over the text.
std::optional<NeedleRecall> needle_recall(
    Model& student,
    Model& teacher,
    const Tokenizer& tokenizer,
    const std::vector<int64_t>& text,
    int64_t T,
    int64_t asked
);

}  // namespace horner
