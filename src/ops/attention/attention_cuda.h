// The kernels of `attention`, best first.
#pragma once

#include "ops/kernel.h"

namespace horner {

std::vector<Kernel> attention_kernels();
Kernel attention_step_kernel();   // step_cuda.cpp
Kernel attention_flash_kernel();  // flash_cuda.cpp

}  // namespace horner
