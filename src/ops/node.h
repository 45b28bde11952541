// The one node of the autograd graph, for C++ and for Python.
#pragma once

#include "ops/op.h"

namespace horner {

struct Call;

// Runs the form's forward. If the form has a backward and a gradient is wanted, it becomes a node of the graph.
Result run_form(const Op&, const Form&, const Inputs&, const State&, const Options&);

// Runs the op as one opaque node, forward and backward through the dispatcher: for the stand-in tensors of a tracer. Its
// backward runs the forward again.
Result run_traced(const Op&, const Call&);

bool takes_packed(const Form&, const Inputs&);

}  // namespace horner
