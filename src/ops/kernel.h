// How a kernel takes the place of a plain form: a table per op, which libhorner_cuda.so fills when it is
// loaded. form = auto runs the first kernel of the table that can and suits; a kernel may also be asked for by name.
#pragma once

#include "ops/op.h"

namespace horner {

struct Kernel {
  std::string_view form;  // "chunked kernel": what Result.form says
  // Why it cannot run these inputs; empty: it can. They have passed check_inputs.
  std::string (*refuses)(const Inputs&, const State&, const Options&);
  Form forward;
  // forward may leave in norm what backward wants of it, in any form; the caller does not see it.
  // Gradients of op.inputs, then of the parts of the state; undefined where there is none.
  // y is what forward returned, or empty; dy its gradient, whose tensors may be undefined.
  std::vector<at::Tensor> (*backward
  )(const Inputs&, const State&, const Options&, const Result& y, const Result& dy);
  // Whether form = auto takes it, where it can run; null: always.
  bool (*suits)(const Inputs&, const State&, const Options&) = nullptr;
  // Whether it takes a packed batch as it is; null: each sequence on its own.
  bool (*packs)(const Inputs&) = nullptr;
};

// Best first; none before libhorner_cuda.so is loaded.
const std::vector<Kernel>& kernels(std::string_view op);
void set_kernels(std::string_view op, std::vector<Kernel> list);

// The kernel that runs these inputs, or null: a plain form does. Throws where one is asked for by name
// and cannot run.
const Kernel* chosen_kernel(const Op&, const Inputs&, const State&, const Options&);

// Asked by a forward: whether its result goes to a backward, so that it is to leave in norm what that reads.
bool backward_follows();

// Its forward, with a node in the autograd graph where a gradient is wanted.
Result run_kernel(const Op&, const Kernel&, const Inputs&, const State&, const Options&);

// Every tensor that may have a gradient: op.inputs, absent ones too, then the state.
std::vector<at::Tensor> gradient_tensors(const Op&, const Inputs&, const State&);

}  // namespace horner
