// The CUDA key of torch.ops.horner.*: the plain forms, until a kernel takes the place of one.
#include "ops/library.h"

TORCH_LIBRARY_IMPL(horner, CUDA, m) { horner::register_forms(m); }
