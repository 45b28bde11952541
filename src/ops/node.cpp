#include "ops/node.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/check.h"
#include "ops/boxed_call.h"

namespace horner {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What a node keeps besides its saved variables. form is null if the call is traced.
struct Held : torch::CustomClassHolder {
  const Op* op = nullptr;
  const Form* form = nullptr;
  Call call;  // without tensors after the forward: they are saved variables
  std::vector<std::string_view> saved;  // names of what the forward kept
  size_t parts = 0;                     // number of parts of the final state
};

Result forward_of(Held& held, Saved& saved) {
  const Call& call = held.call;
  if (held.form != nullptr) return held.form->forward(call.in, call.state, call.options, &saved);
  const at::AutoDispatchBelowADInplaceOrView below;
  torch::jit::Stack stack = push_call(*held.op, call);
  call_op(*held.op, "", &stack);
  Result y;
  y.o = stack[0].toTensor();
  y.state.parts = stack[1].toTensorVector();
  y.norm = stack[2].toTensor();
  return y;
}

// Gradients of held.call.tensors().
variable_list backward_of(const Held& held, const Call& call, const Saved& saved) {
  if (held.form != nullptr)
    return held.form->backward(call.in, call.state, call.options, saved, call.grad);
  torch::jit::Stack stack = push_call(*held.op, call, true);
  call_op(*held.op, "_backward", &stack);
  return stack[0].toTensorVector();
}

bool differentiable(const at::Tensor& x) {
  const bool number = x.defined() && (x.is_floating_point() || x.is_complex());
  return number && !(x.dim() == 1 && x.sym_size(0) == 0);
}

Result result_of(const variable_list& list, size_t parts) {
  const auto end = list.begin() + 1 + int64_t(parts);
  return {list[0], {{list.begin() + 1, end}}, end == list.end() ? at::Tensor() : *end, {}};
}

// Outputs: o, the parts of the state, and norm if there is one. The edges of the graph come from `present`, the defined tensors
// of the call, because apply() cannot see tensors inside `held`, nor undefined ones.
struct Node : torch::autograd::Function<Node> {
  static variable_list forward(
      AutogradContext* ctx, const c10::intrusive_ptr<Held>& held, at::TensorList /* present */
  ) {
    Saved saved;
    const Result y = forward_of(*held, saved);
    variable_list keep = held->call.tensors(*held->op);
    for (const auto& [name, tensor] : saved.tensors) {
      held->saved.push_back(name);
      keep.push_back(tensor);
    }
    ctx->save_for_backward(keep);
    ctx->set_materialize_grads(false);
    for (const Input& input : held->op->inputs) held->call.in.*input.tensor = at::Tensor();
    for (at::Tensor& part : held->call.state.parts) part = at::Tensor();
    ctx->saved_data["held"] = c10::IValue::make_capsule(held);
    held->parts = y.state.parts.size();
    variable_list outputs = {y.o}, fixed;
    outputs.insert(outputs.end(), y.state.parts.begin(), y.state.parts.end());
    if (y.norm.defined()) outputs.push_back(y.norm);
    for (const at::Tensor& x : outputs) {
      if (!differentiable(x)) fixed.push_back(x);
    }
    ctx->mark_non_differentiable(fixed);
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto held = c10::static_intrusive_pointer_cast<Held>(ctx->saved_data["held"].toCapsule());
    HORNER_CHECK(
        held->form == nullptr || !at::GradMode::is_enabled(),
        "[{}] has no second derivative: its backward cannot be differentiated again",
        held->op->name
    );
    variable_list keep = ctx->get_saved_variables();
    Saved saved;
    for (size_t i = held->saved.size(); i-- > 0; keep.pop_back())
      saved[held->saved[i]] = keep.back();
    Call call = held->call;
    call.set_tensors(*held->op, keep);
    call.grad = result_of(grads, held->parts);
    const variable_list all = backward_of(*held, call, saved);
    variable_list found = {at::Tensor()};  // `held` has no gradient
    for (size_t i = 0; i < keep.size(); ++i) {
      if (keep[i].defined()) found.push_back(differentiable(keep[i]) ? all[i] : at::Tensor());
    }
    return found;
  }
};

Result apply(const Op& op, const Form* form, const Call& call) {
  auto held = c10::make_intrusive<Held>();
  held->op = &op;
  held->form = form;
  held->call = call;
  variable_list present = call.tensors(op);
  std::erase_if(present, [](const at::Tensor& x) { return !x.defined(); });
  const variable_list y = Node::apply(held, at::TensorList(present));
  return result_of(y, held->parts);
}

}  // namespace

Result run_form(
    const Op& op, const Form& form, const Inputs& in, const State& state, const Options& options
) {
  if (form.backward == nullptr || !wants_gradient(op, in, state))
    return form.forward(in, state, options, nullptr);
  return apply(op, &form, {in, state, options, {}});
}

Result run_traced(const Op& op, const Call& call) { return apply(op, nullptr, call); }

}  // namespace horner
