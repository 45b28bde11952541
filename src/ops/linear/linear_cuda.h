// The kernels of `linear`: chunked on the tensor cores of sm_90a, and recurrent, its oracle, anywhere.
#pragma once

#include "ops/kernel.h"

namespace horner {

std::vector<Kernel> linear_kernels();
std::vector<Kernel> gated_kernels();  // of exponential_gate.cpp

}  // namespace horner
