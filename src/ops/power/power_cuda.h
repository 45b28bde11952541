// The kernels of `power`. step, chunked and wide (for wide keys) keep a state; parallel and direct compute all pairs.
#pragma once

#include "cuda/tensors.h"
#include "ops/op.h"
#include "ops/power/power.cuh"

namespace horner {

std::vector<Form> power_kernels();

Form power_step_kernel();
Form power_parallel_kernel();
Form power_wide_kernel();
Form power_direct_kernel();

// The parallel kernel's o, and what its backward also reads: the rounding error of o, and 1 / den (B,H,T), T rounded up to a
// multiple of 64, negative if den was below eps.
struct PowerParts {
  at::Tensor o, rest, inverse;
};
PowerParts power_parallel_parts(const Inputs&, const Options&);
at::Tensor power_parallel_kept(const at::Tensor& rest, const at::Tensor& inverse);  // as one tensor
std::vector<at::Tensor> power_parallel_backward(
    const Inputs&, const Options&, const at::Tensor& o, const at::Tensor& kept, const at::Tensor& dO
);

// What all kernels share.
double scale_of(const Inputs&, const Options&);
std::string refuses_any_power(const Inputs&, const Options&);

}  // namespace horner
