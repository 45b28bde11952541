// The kernels of `attention`, best first.
#pragma once

#include "ops/op.h"

namespace horner {

std::vector<Form> attention_kernels();
Form attention_step_kernel();   // step_cuda.cpp
Form attention_flash_kernel();  // flash_cuda.cpp

}  // namespace horner
