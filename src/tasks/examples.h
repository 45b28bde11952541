// What generators of examples share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace horner {

// Runs `make(row, index)` for every example, on all threads; the rows must not share what they write.
void each_example(
    const std::vector<int64_t>& indices, const std::function<void(int64_t row, int64_t index)>& make
);

// The segment in which all the indices lie; it is an error if they lie in two, or beyond the last.
size_t segment_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& indices);

}  // namespace horner
