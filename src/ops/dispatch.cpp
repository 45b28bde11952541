#include "ops/dispatch.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "core/memory.h"
#include "ops/boxed_call.h"

namespace horner {

bool have_memory(const Op& op, const Inputs& in, const State& state) {
  const std::vector<at::Tensor> all = gradient_tensors(op, in, state);
  return std::all_of(all.begin(), all.end(), [](const at::Tensor& x) {
    return !x.defined() || has_memory(x);
  });
}

Result dispatch(const Op& op, const Inputs& in, const State& state, const Options& options) {
  if (have_memory(op, in, state)) return run(op, in, state, options);
  const c10::impl::ExcludeDispatchKeyGuard typed(c10::autocast_dispatch_keyset);
  torch::jit::Stack stack = push_call(op, {in, state, options, {}});
  call_op(op, "", &stack);
  Result result{stack[0].toTensor(), {stack[1].toTensorVector()}, {}, {}};
  if (options.log_norm) result.norm = stack[2].toTensor();
  return result;
}

}  // namespace horner
