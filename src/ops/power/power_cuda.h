// The kernels of `power`: step and chunked keep a state, parallel is for wide keys, direct is the oracle.
#pragma once

#include "ops/kernel.h"
#include "ops/power/power.cuh"

namespace horner {

std::vector<Kernel> power_kernels();

Kernel power_step_kernel();
Kernel power_parallel_kernel();
Kernel power_direct_kernel();

// What all of them share.
double scale_of(const Inputs&, const Options&);
std::string refuses_any_power(const Inputs&, const Options&);
at::Tensor readable(const at::Tensor& x);  // last dimension contiguous, rows of 16 bytes
cuda::PowerRows rows(const at::Tensor& x, int64_t H);

}  // namespace horner
