#include "tasks/examples.h"

#include <ATen/Parallel.h>

#include "core/check.h"

namespace horner {

void each_example(
    const std::vector<int64_t>& indices, const std::function<void(int64_t, int64_t)>& make
) {
  at::parallel_for(0, int64_t(indices.size()), 8, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) make(row, indices[size_t(row)]);
  });
}

size_t segment_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& indices) {
  HORNER_CHECK(!indices.empty(), "[task] a batch needs at least one example");
  int64_t start = 0;
  for (size_t segment = 0; segment < sizes.size(); ++segment) {
    const int64_t rest = indices.front() - start;
    if (rest < sizes[segment]) {
      for (const int64_t index : indices) {
        HORNER_CHECK(
            index >= start && index - start < sizes[segment],
            "[task] examples {} and {} lie in different segments",
            indices.front(),
            index
        );
      }
      return segment;
    }
    start += sizes[segment];
  }
  throw UsageError("[task] there is no example {}", indices.front());
}

}  // namespace horner
