// The kernel of `scan`, real: one pass over memory each way.
#pragma once

#include "ops/kernel.h"

namespace horner {

std::vector<Kernel> scan_kernels();

}  // namespace horner
