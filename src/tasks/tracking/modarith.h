// Arithmetic modulo 5 (arXiv:2411.12537): one target, the result, at "=".
//
//   ids: 0 pad, 1 +, 2 -, 3 x, 4 =, 5 .. 9 the numbers, 10 (, 11 )
//
//   modarith            number (op number)* =            x binds tighter; the length is even
//   modarith_brackets   e(n) =
//     e(1) = number   e(2) = - number   e(3) = ( number )   e(4) = ( - number )
//     e(n) = ( e(a) op e(n-a-3) ),  a = 1 + int(n-4),  op of +, - (and x where asked for)
//
// Numbers and operators are drawn from left to right; a is drawn before the contents of its brackets.
#pragma once

#include "tasks/examples.h"

namespace horner {

class Modarith : public Generated {
 public:
  using Options = LengthOptions;
  explicit Modarith(const Options& options);
  TaskShape shape() const override;
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }

 protected:
  Layout layout(Split split) const override;
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  const Options o_;
};

struct BracketsOptions : LengthOptions {
  bool times = false;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("times", times, "x too, besides + and -");
    LengthOptions::visit(visit);
  }
};

class ModarithBrackets : public Generated {
 public:
  using Options = BracketsOptions;
  explicit ModarithBrackets(const Options& options);
  TaskShape shape() const override;
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }

 protected:
  Layout layout(Split split) const override;
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  const Options o_;
};

}  // namespace horner
