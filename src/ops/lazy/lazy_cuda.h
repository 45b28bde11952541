// Kernels in the place of lazy steps.
#pragma once

#include "ops/lazy/lazy.h"

namespace horner {

Reader linear_reader();
Reader power_reader();

}  // namespace horner
