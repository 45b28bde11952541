// Needles in a haystack, for small models.
//
//   ids     0 pad, 1 needle mark, 2 query mark, 16 .. 143 keys, 144 .. 271 values, 272 .. 511 filler
//   needle  1 key v1 v2 v3 v4,  m of them with distinct keys at places that do not overlap
//   tail    2 key v1 v2 v3;     targets v1 .. v4 at the last four positions
//
// The needle in question is at a depth of 0, 10, .. 100 % of the places before the tail. Drawn in this order: keys, values,
// depth, the places of the other needles (again if one would overlap), filler from left to right.
#pragma once

#include "tasks/examples.h"

namespace horner {

struct NeedleOptions : ExampleOptions {
  int64_t T = 256, m = 1, depth = -1;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("T", T, "tokens of an example");
    visit("m", m, "needles");
    visit("depth", depth, "per cent of the way to the tail; -1: each of 0, 10, .. 100");
    ExampleOptions::visit(visit);
  }
};

class Needle : public Generated {
 public:
  using Options = NeedleOptions;
  explicit Needle(const Options& options);
  TaskShape shape() const override;
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  int64_t free_running() const override;
  Json options() const override { return to_json(o_); }

 protected:
  Layout layout(Split split) const override;
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  const Options o_;
};

}  // namespace horner
