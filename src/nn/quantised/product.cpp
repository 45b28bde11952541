#include "nn/quantised/product.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace horner {
namespace {

using vectors::kLanes;
using vectors::Vector;

struct Job {
  const PackedWeight& w;
  const Activations& x;
  const std::byte* values;
  const uint16_t *scales, *minima;
  float* y;
  int64_t stride;
  bool add;
};

#define HORNER_LOOPS "nn/quantised/product.inc"
#include "nn/cpu/each_target.inc"

}  // namespace

void Activations::resize(int64_t new_rows, int64_t new_in) {
  rows = new_rows, in = new_in;
  const size_t values = size_t(rows * width()), groups = size_t(rows * blocks());
  if (x.size() < values) x.resize(values), q.resize(values);
  if (d.size() < groups) d.resize(groups), s.resize(groups), sum.resize(groups);
  if (in < width())
    for (int64_t i = 0; i < rows; ++i) std::fill(row(i) + in, row(i) + width(), 0.f);
}

void round_blocks(Activations& x, int64_t row, int64_t begin, int64_t end, Target target) {
  switch (target) {
    case Target::plain: return plain::round_row(x, row, begin, end);
    case Target::avx2: return avx2::round_row(x, row, begin, end);
    case Target::avx512: return avx512::round_row(x, row, begin, end);
  }
}

void product(
    const PackedWeight& w,
    int64_t begin,
    int64_t end,
    const Activations& x,
    float* y,
    int64_t stride,
    bool add,
    Target target
) {
  const Job job{w, x, w.values.get(), w.scales.get(), w.minima.get(), y, stride, add};
  switch (target) {
    case Target::plain: return plain::groups(job, begin, end);
    case Target::avx2: return avx2::groups(job, begin, end);
    case Target::avx512: return avx512::groups(job, begin, end);
  }
}

}  // namespace horner
