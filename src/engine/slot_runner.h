// Model::forward for a GPU: the states of streams that step together lie in slots, and a step is one CUDA graph.
//
//   streams      1    2    3 .. 4    5 .. 8   ..      a graph for each of these numbers of rows, and for each power of 2 that
//   rows         1    2    4         8        ..      the longest of them needs; recorded when it is needed a second time
//
// Matrices are bf16, sums and states fp32, caches bf16. On a CPU nothing is recorded; tests use that.
#pragma once

#include "engine/runner.h"

namespace horner {

struct SlotOptions {
  int64_t rows = 64;  // most streams in a step
  // Every step has all rows, so that a product of a row is always computed in the same way: a stream has the same bits alone
  // and beside others.
  bool invariant = false;
  bool bf16 = true;
  // Bytes of all rows at most: it limits the tokens of a stream, since each row has room for the longest one. 0: no limit.
  int64_t memory = 0;
};

// UsageError if it is no causal language model, or if the memory has no room for texts.
std::unique_ptr<Runner> slot_runner(std::shared_ptr<Model> model, const SlotOptions& options = {});

}  // namespace horner
