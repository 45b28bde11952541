// The ops as torch.ops.horner.*, for Python and for anything that goes through the dispatcher.
#pragma once

#include <torch/library.h>

namespace horner {

// Registers forward and backward of every op on the list under the dispatch key of m.
void register_forms(torch::Library& m);

// In libhorner_cuda.so: gives the ops' forms their kernels.
void implement_kernels();

}  // namespace horner
