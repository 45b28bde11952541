// Initial weights, in fp32. A scope's name and seed decide what is drawn (core/initial.h). Undefined while tensors are lent
// (nn/parameter.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

// While it lives, the functions below give shapes without memory (meta tensors) on this thread.
class ShapesOnly {
 public:
  ShapesOnly();
  ~ShapesOnly();
  ShapesOnly(const ShapesOnly&) = delete;

 private:
  const bool before_;
};

// While it lives, the functions below give tensors whose elements are all one number in memory, on this thread. Loading a
// model replaces them by set_data: nothing is drawn, and a shape that lies allocates nothing.
class Unfilled {
 public:
  Unfilled();
  ~Unfilled();
  Unfilled(const Unfilled&) = delete;

 private:
  const bool before_;
};

at::Tensor normal(at::IntArrayRef sizes, double deviation = 0.02);
at::Tensor uniform(at::IntArrayRef sizes, double low, double high);
at::Tensor constant(at::IntArrayRef sizes, double value);
at::Tensor xavier(
    int64_t out, int64_t in, double gain
);  // uniform, bound gain sqrt(6 / (in + out))
// b with softplus(b) log-uniform in [low, high]: the step sizes of Mamba.
at::Tensor inverse_softplus_of_steps(int64_t n, double low = 1e-3, double high = 1e-1);

}  // namespace horner
