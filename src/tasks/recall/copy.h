// Copying: M data tokens must be written again at the markers.
//
//   ids: 0 blank, 1 .. A-2 data, A-1 marker
//   copy            M data tokens, G blanks, M markers
//   selective_copy  the M tokens are at places distinct(G+M, M), sorted, blanks elsewhere; then M markers
//   targets = the data in their order, at the markers
//
// With `least` the strings differ: least .. M tokens, blanks after the last marker.
//
// Drawn in this order: the number of tokens (if strings differ), the data, the places. The setting of the Mamba paper
// (arXiv:2312.00752) is selective_copy:G=4080,M=16,A=16, that of MAD (arXiv:2403.17844) is selective_copy:G=224,M=16,A=16.
#pragma once

#include "tasks/examples.h"

namespace horner {

struct CopyOptions : ExampleOptions {
  int64_t G = 100, M = 10, A = 10, least = 0;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("G", G, "blanks");
    visit("M", M, "data tokens");
    visit("A", A, "ids: a blank, A - 2 data, a marker");
    visit("least", least, "data tokens at least, M at most; 0: always M");
    ExampleOptions::visit(visit);
  }
};

class Copy : public Generated {
 public:
  using Options = CopyOptions;
  explicit Copy(const Options& options, bool selective = false);
  TaskShape shape() const override;
  // The same task with other numbers of blanks; if strings differ, with the longest string that fits.
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }

 protected:
  Layout layout(Split split) const override;
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  const Options o_;
  const bool selective_;
};

struct SelectiveCopy : Copy {
  explicit SelectiveCopy(const Options& options) : Copy(options, true) {}
};

}  // namespace horner
