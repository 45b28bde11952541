// ListOps (arXiv:2011.04006): the value of nested lists, as a class of ten.
//
//   tree(depth): depth = 10 or uni() > 1/4: digit int(10)
//                else n = 2 + int(9) children tree(depth+1), then op = int(4)
//   kept when above < length < below; an example redraws from its stream until one is kept.
//   Duplicates are not checked: two trees of that length are practically never equal
//
//   ids: 0 pad, 1 .. 10 digits 0 .. 9, 11 .. 14 [MIN [MAX [MED [SM, 15 ]
//   MED is the median, of two middle values their mean rounded down; SM is the sum modulo 10
#pragma once

#include "tasks/examples.h"

namespace horner {

struct ListOpsOptions : ExampleOptions {
  int64_t above = 500, below = 2000, depth = 10;
  ListOpsOptions() { train = 96000, test = 2000; }

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("above", above, "a tree has more tokens than this");
    visit("below", below, "and fewer than this, which is T");
    visit("depth", depth, "levels of a tree");
    ExampleOptions::visit(visit);
  }
};

std::vector<int64_t> draw_tree(Random& random, int64_t depth);  // ids

// The value of a tree. Operators below `levels` are not computed but guessed: MIN 0, MAX 9, others 4. UsageError if the ids are
// not a tree.
int64_t evaluate_tree(const std::vector<int64_t>& ids, int64_t levels = kEndless);

class ListOps : public Generated {
 public:
  using Options = ListOpsOptions;
  explicit ListOps(const Options& options);
  TaskShape shape() const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }

 protected:
  Layout layout(Split split) const override;
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  const Options o_;
};

}  // namespace horner
