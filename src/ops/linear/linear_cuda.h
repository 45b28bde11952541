#pragma once

#include "ops/op.h"

namespace horner {

std::vector<Form> linear_kernels();

}  // namespace horner
