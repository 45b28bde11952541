// The one node of the autograd graph, for C++ and for Python.
#pragma once

#include "ops/op.h"

namespace horner {

struct Call;

// The form's forward; a node of the graph where it has a backward of its own and a gradient is wanted.
Result run_form(const Op&, const Form&, const Inputs&, const State&, const Options&);

// The op as one opaque node, forward and backward through the dispatcher: for tensors that a tracer has put in the place
// of real ones. Its backward runs the forward again.
Result run_traced(const Op&, const Call&);

bool takes_packed(const Form&, const Inputs&);

}  // namespace horner
