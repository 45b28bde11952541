// The word problem of a finite group (arXiv:2404.08819, 2502.10297): the product so far, at every step.
//
//   groups    S<n>, A<n> permutations in lexicographic order of one-line notation, so 0 is the
//             identity; Z<n> residues; products "A4xZ5", row-major
//   ids       0 pad, 1 begin, 2+e element e
//   tokens    begin, x_1 .. x_k, x_i = 2 + int(|G|)
//   targets   2 + y_i at x_i,  y_i = y_{i-1} x_i, where a b applies a first; none at begin
#pragma once

#include "tasks/examples.h"

namespace horner {

// A finite group as its table; element 0 is the identity.
struct Group {
  int64_t order = 1;
  std::vector<int32_t> table = {0};  // (order,order)

  int64_t times(int64_t a, int64_t b) const { return table[size_t(a * order + b)]; }
};

Group make_group(std::string_view name);                // "S5", "A4xZ5"
int64_t commutator_subgroup_order(const Group& group);  // 1: the group is commutative

struct GroupOptions : ExampleOptions {
  std::string group = "S5";
  int64_t k = 20;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("group", group, "S<n>, A<n>, Z<n>, or a product as A4xZ5");
    visit("k", k, "elements of a word");
    ExampleOptions::visit(visit);
  }
};

class GroupWords : public Generated {
 public:
  using Options = GroupOptions;
  explicit GroupWords(const Options& options);
  TaskShape shape() const override;
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  std::string metric() const override { return "sequence accuracy"; }
  Json options() const override { return to_json(o_); }

 protected:
  Layout layout(Split split) const override;
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  const Options o_;
  const Group group_;
};

}  // namespace horner
