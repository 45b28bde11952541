// Initial weights, in fp32. A scope's name and seed decide what is drawn (core/initial.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

at::Tensor normal(at::IntArrayRef sizes, double deviation = 0.02);
at::Tensor uniform(at::IntArrayRef sizes, double low, double high);
at::Tensor xavier(
    int64_t out, int64_t in, double gain
);  // uniform, bound gain sqrt(6 / (in + out))
// b with softplus(b) log-uniform in [low, high]: the step sizes of Mamba.
at::Tensor inverse_softplus_of_steps(int64_t n, double low = 1e-3, double high = 1e-1);

}  // namespace horner
