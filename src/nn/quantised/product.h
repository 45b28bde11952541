// y = x W^T on a CPU, W packed (packed.h), for one or many rows of x.
//
//   u8, u4   x of a block of 32 inputs is rounded to xd xq, xq int8, xd = max |x| / 127; with xs = xd sum xq:
//            y = sum over blocks of  d xd (q.xq) + m xs,   or d xd (q.xq - zero sum xq)
//   f32, bf16   y = sum of x w in fp32
//
// q.xq is exact in int32. The rounding of x is the only difference from the product with the values of W, apart from the
// order of the sum: |error| <= sum over blocks of xd / 2 sum |w|.
// A thread computes groups of 16 rows of W for all rows of x.
#pragma once

#include <vector>

#include "nn/cpu/targets.h"
#include "nn/quantised/packed.h"

namespace horner {

// Rows of x in the form that products read. It keeps its memory between uses.
struct Activations {
  int64_t rows = 0, in = 0;
  std::vector<float> x;      // (rows, in padded to blocks): as it is, for f32 and bf16
  std::vector<int8_t> q;     // the same, rounded
  std::vector<float> d, s;   // (rows,blocks): xd, xs
  std::vector<int32_t> sum;  // (rows,blocks): sum xq

  void resize(int64_t rows, int64_t in);
  int64_t blocks() const { return (in + PackedWeight::kInputs - 1) / PackedWeight::kInputs; }
  int64_t width() const { return blocks() * PackedWeight::kInputs; }
  float* row(int64_t i) { return x.data() + i * width(); }
};

// Rounds blocks `begin` to `end` of x's row i, after they have been written.
void round_blocks(
    Activations& x, int64_t row, int64_t begin, int64_t end, Target target = best_target()
);

// Groups `begin` to `end` of 16 rows of w: y (x.rows, out), rows `stride` apart, = x W^T, or += if `add` is set.
void product(
    const PackedWeight& w,
    int64_t begin,
    int64_t end,
    const Activations& x,
    float* y,
    int64_t stride,
    bool add,
    Target target = best_target()
);

}  // namespace horner
