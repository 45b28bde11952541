// The kernels of lazy steps.
#pragma once

#include "ops/lazy/lazy.h"

namespace horner {

const Reader* linear_reader();
const Reader* power_reader();

}  // namespace horner
