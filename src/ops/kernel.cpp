#include "ops/kernel.h"

#include <c10/core/GradMode.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/custom_function.h>

#include <map>

#include "core/check.h"

namespace horner {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::map<std::string_view, std::vector<Kernel>>& table() {
  static std::map<std::string_view, std::vector<Kernel>> kernels_of;
  return kernels_of;
}

thread_local bool in_graph = false;  // a forward is running whose node keeps its result

// What a node of the graph keeps beside its tensors.
struct Held : torch::CustomClassHolder {
  const Op* op;
  const Kernel* kernel;
  Inputs in;  // emptied after forward: the tensors are saved variables
  at::Tensor cu_seqlens;
  State state;
  Options options;
};

// The edges of the graph come from `present`, the defined tensors of the call: apply() sees neither a
// vector nor an undefined tensor.
struct KernelNode : torch::autograd::Function<KernelNode> {
  static variable_list forward(
      AutogradContext* ctx, const c10::intrusive_ptr<Held>& held, at::TensorList /* present */
  ) {
    in_graph = true;
    const auto after = c10::make_scope_exit([] { in_graph = false; });
    const Result y = held->kernel->forward(held->in, held->state, held->options);
    variable_list outputs = {y.o};
    outputs.insert(outputs.end(), y.state.parts.begin(), y.state.parts.end());
    variable_list saved = gradient_tensors(*held->op, held->in, held->state);
    saved.push_back(y.o);
    saved.push_back(y.norm);
    ctx->save_for_backward(saved);
    ctx->set_materialize_grads(false);
    held->in = {};
    held->state = {};
    ctx->saved_data["held"] = c10::IValue::make_capsule(held);
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto held = c10::static_intrusive_pointer_cast<Held>(ctx->saved_data["held"].toCapsule());
    HORNER_CHECK(
        !at::GradMode::is_enabled(),
        "[{}] has no second derivative: its backward cannot be differentiated again",
        held->op->name
    );
    variable_list saved = ctx->get_saved_variables();
    Result y, dy;
    y.norm = saved.back();
    saved.pop_back();
    y.o = saved.back();
    saved.pop_back();
    dy.o = grads[0];
    dy.state.parts.assign(grads.begin() + 1, grads.end());
    Inputs in;
    in.cu_seqlens = held->cu_seqlens;
    const size_t inputs = held->op->inputs.size();
    for (size_t i = 0; i < inputs; ++i) in.*held->op->inputs[i].tensor = saved[i];
    const State state{{saved.begin() + int64_t(inputs), saved.end()}};
    const variable_list all = held->kernel->backward(in, state, held->options, y, dy);
    variable_list found = {at::Tensor()};  // of held
    for (size_t i = 0; i < saved.size(); ++i) {
      if (saved[i].defined()) found.push_back(all[i]);
    }
    return found;
  }
};

}  // namespace

const std::vector<Kernel>& kernels(std::string_view op) { return table()[op]; }

void set_kernels(std::string_view op, std::vector<Kernel> list) { table()[op] = std::move(list); }

bool backward_follows() { return in_graph; }

const Kernel* chosen_kernel(
    const Op& op, const Inputs& in, const State& state, const Options& options
) {
  if (options.form == "auto") {
    if (!in.v.is_cuda()) return nullptr;
    for (const Kernel& kernel : kernels(op.name)) {
      if (kernel.suits && !kernel.suits(in, state, options)) continue;
      if (kernel.refuses(in, state, options).empty()) return &kernel;
    }
    return nullptr;
  }
  if (!options.form.ends_with(" kernel")) return nullptr;
  HORNER_CHECK(
      in.v.is_cuda(), "[{}] the {} needs a GPU, got {}", op.name, options.form, in.v.device().str()
  );
  for (const Kernel& kernel : kernels(op.name)) {
    if (kernel.form != options.form) continue;
    const std::string reason = kernel.refuses(in, state, options);
    HORNER_CHECK(reason.empty(), "[{}] the {} cannot run: {}", op.name, options.form, reason);
    return &kernel;
  }
  throw UsageError("[{}] has no {}", op.name, options.form);
}

Result run_kernel(
    const Op& op, const Kernel& kernel, const Inputs& in, const State& state, const Options& options
) {
  variable_list present = gradient_tensors(op, in, state);
  std::erase_if(present, [](const at::Tensor& x) { return !x.defined(); });
  bool graph = false;
  for (const at::Tensor& x : present) graph = graph || x.requires_grad();
  if (!graph || !at::GradMode::is_enabled()) {
    Result y = kernel.forward(in, state, options);
    if (!options.log_norm) y.norm = at::Tensor();
    return y;
  }
  auto held = c10::make_intrusive<Held>();
  held->op = &op;
  held->kernel = &kernel;
  held->in = in;
  held->cu_seqlens = in.cu_seqlens;
  held->state = state;
  held->options = options;
  const variable_list outputs = KernelNode::apply(held, at::TensorList(present));
  return {outputs[0], {{outputs.begin() + 1, outputs.end()}}, {}, kernel.form};
}

std::vector<at::Tensor> gradient_tensors(const Op& op, const Inputs& in, const State& state) {
  std::vector<at::Tensor> list;
  for (const Input& input : op.inputs) list.push_back(in.*input.tensor);
  list.insert(list.end(), state.parts.begin(), state.parts.end());
  return list;
}

}  // namespace horner
