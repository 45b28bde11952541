// The kernels of `delta`: one token, chunked on tensor cores, and recurrent, the oracle of both.
#pragma once

#include "ops/kernel.h"

namespace horner {

std::vector<Kernel> delta_kernels();
Kernel delta_step_kernel();

}  // namespace horner
