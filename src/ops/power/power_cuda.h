// The kernels of `power`: step, chunked and, for wide keys, wide keep a state; parallel is all pairs, direct the oracle.
#pragma once

#include "ops/kernel.h"
#include "ops/power/power.cuh"

namespace horner {

std::vector<Kernel> power_kernels();

Kernel power_step_kernel();
Kernel power_parallel_kernel();
Kernel power_wide_kernel();
Kernel power_direct_kernel();

// The parallel kernel's o, as a sum of two bf16.
std::pair<at::Tensor, at::Tensor> power_parallel_sums(const Inputs&, const Options&);
// What its backward reads in y.norm: what rounding left of o, bf16 (B,T,H,V), and 1 / den (B,H,T), T a multiple of 64,
// negative where den was held at eps.
at::Tensor power_parallel_kept(const at::Tensor& rest, const at::Tensor& inverse);

// What all of them share.
double scale_of(const Inputs&, const Options&);
std::string refuses_any_power(const Inputs&, const Options&);
at::Tensor readable(const at::Tensor& x);  // last dimension contiguous, rows of 16 bytes
cuda::PowerRows rows(const at::Tensor& x, int64_t H);

}  // namespace horner
