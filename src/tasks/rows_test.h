// What tests of tasks share: rows of a batch as plain numbers.
#pragma once

#include <numeric>

#include "tasks/task.h"

namespace horner {

inline std::vector<int64_t> numbers(const at::Tensor& row) {
  const at::Tensor flat = row.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

inline std::vector<int64_t> first(int64_t n) {  // examples
  std::vector<int64_t> indices(static_cast<size_t>(n));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// The tokens and targets of each example, padding cut off.
struct TestRow {
  std::vector<int64_t> tokens, targets;
};

inline std::vector<TestRow> rows(const std::string& task, Split split, int64_t n) {
  const Batch batch = make_task(task)->batch(split, first(n));
  std::vector<TestRow> list;
  for (int64_t row = 0; row < n; ++row) {
    TestRow next{numbers(batch.tokens[row]), {}};
    if (batch.targets.defined()) next.targets = numbers(batch.targets[row]);
    if (batch.lengths.defined()) {
      const auto length = size_t(batch.lengths[row].item<int64_t>());
      next.tokens.resize(length);
      if (batch.targets.defined()) next.targets.resize(length);
    }
    list.push_back(std::move(next));
  }
  return list;
}

}  // namespace horner
