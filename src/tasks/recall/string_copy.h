// Copying a string, letter by letter (arXiv:2511.17388, after 2402.01032).
//
//   $ x_1 .. x_n | x_1 .. x_n .        ids: 0 .. A-1 letters, A $, A+1 |, A+2 ., A+3 padding
//   targets: x_1 at the bar, then the next letter at each letter of the copy, the dot at the last one
//
// The model reads the copy so far: a letter can be found by the letter before it. Training rows are packed with strings of
// least .. M letters; the string that does not fit is cut and not asked. A row of validation or test has one string and padding.
// At another length T every row is one string of (T - 3) / 2 letters. Drawn per string: its length, then its letters.
#pragma once

#include "tasks/examples.h"

namespace horner {

struct StringCopyOptions : ExampleOptions {
  int64_t T = 420, least = 2, M = 64, A = 26;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("T", T, "tokens of a row");
    visit("least", least, "letters of the shortest string");
    visit("M", M, "letters of the longest string");
    visit("A", A, "letters of the alphabet");
    ExampleOptions::visit(visit);
  }
};

class StringCopy : public Generated {
 public:
  using Options = StringCopyOptions;
  explicit StringCopy(const Options& options);
  TaskShape shape() const override { return {.T = o_.T, .vocabulary = o_.A + 4}; }
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }

 protected:
  Layout layout(Split) const override { return {.T = o_.T, .slices = {"length"}}; }
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  const Options o_;
};

}  // namespace horner
