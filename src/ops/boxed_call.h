// A call of an op: from the dispatcher's stack of values to what the forms take, and back.
#pragma once

#include <ATen/core/stack.h>

#include "ops/op.h"

namespace horner {

struct Call {
  Inputs in;
  State state;
  Options options;
  Result grad;  // of a backward call

  std::vector<at::Tensor> tensors(const Op& op) const { return gradient_tensors(op, in, state); }
  void set_tensors(const Op& op, const std::vector<at::Tensor>& list);
};

// The arguments of a schema: op.inputs, state, cu_seqlens, the gradients of a backward call, and after the star the
// options that the op reads.
std::string schema_arguments(const Op& op, bool backward);
Call pop_call(const Op& op, torch::jit::Stack* stack, bool backward = false);
torch::jit::Stack push_call(const Op& op, const Call& call, bool backward = false);
// Calls horner::<op><suffix> through the dispatcher.
void call_op(const Op& op, std::string_view suffix, torch::jit::Stack* stack);

}  // namespace horner
