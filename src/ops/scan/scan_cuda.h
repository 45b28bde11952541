// The kernel of `scan`, real: one pass over memory each way.
#pragma once

#include "ops/op.h"

namespace horner {

std::vector<Form> scan_kernels();

}  // namespace horner
