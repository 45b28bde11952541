// The kernels of `delta`: step for one token, chunked on tensor cores, and recurrent, the oracle of both.
#pragma once

#include "ops/op.h"

namespace horner {

std::vector<Form> delta_kernels();
Form delta_step_kernel();

}  // namespace horner
