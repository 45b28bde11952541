// Which examples a step sees. They depend only on the step. So a resume needs no state, and every process of a group knows
// which examples the others take.
//
//   endless   step s takes s B .. s B + B-1
//   finite    epoch after epoch; in each the segments in their order, a segment in the order of
//             permutation(seed, epoch), B examples at a time; its last batch may be smaller
#pragma once

#include "tasks/task.h"

namespace horner {

class Sampler {
 public:
  Sampler(const Task& task, int64_t batch);
  std::vector<int64_t> at(int64_t step);             // indices of the training split
  int64_t steps_of_epoch() const { return steps_; }  // kEndless if there are no epochs

 private:
  const int64_t batch_;
  uint64_t seed_ = 1234;
  std::vector<int64_t> sizes_;
  int64_t steps_ = 0;
  int64_t epoch_ = -1;
  size_t segment_ = 0;
  std::vector<int64_t> order_;  // of the segment visited last
};

// The part of `indices` that process `rank` of `world` takes: as equal as can be, in order.
std::vector<int64_t> share_of(const std::vector<int64_t>& indices, int64_t rank, int64_t world);

// 0 .. n-1 of a split, in batches that hold no two segments; n = 0: all.
std::vector<std::vector<int64_t>> batches_of(const Task&, Split, int64_t n, int64_t batch);

}  // namespace horner
