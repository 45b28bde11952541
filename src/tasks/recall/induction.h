// Induction heads (arXiv:2312.00752): what followed the special token the first time?
//
//   ids: 0 .. N-2 ordinary, N-1 special
//   special at p = int(T-2) and at T-1, ordinary elsewhere, drawn left to right
//   target tokens[p+1], at T-1 only
#pragma once

#include "tasks/examples.h"

namespace horner {

struct InductionOptions : ExampleOptions {
  int64_t T = 256, N = 16;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("T", T, "tokens of an example");
    visit("N", N, "ids, the last one special");
    ExampleOptions::visit(visit);
  }
};

class Induction : public Generated {
 public:
  using Options = InductionOptions;
  explicit Induction(const Options& options);
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
