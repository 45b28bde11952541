// torch.ops.horner.*: schema, CPU, Autograd, Autocast and Meta for every op on the list, in one loop.
//
//   horner::<op>(inputs, state, cu_seqlens, *, options) -> (Tensor o, Tensor[] state, Tensor norm)
//   horner::<op>_backward(the same, do, dstate, dnorm) -> Tensor[]     gradients of inputs, then of state
//   horner::<op>_form(the same as <op>) -> str                         the form that would run
//   horner::<op>_in_place(the same as <op>)                            only ops that keep tokens (attention)
//   horner::version() -> str                                           of core/version.h
//
// What <op> returns is contiguous and shares no memory with what it got: compiled graphs rely on both. The cache of
// <op>_in_place grows in place, so the new state shares memory with the old one (attention/cache.h); it is for eager code.
//
// The schema comes from op.inputs and op.options. norm has no elements if log_norm is false.
#include "ops/library.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "core/check.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/version.h"
#include "ops/attention/cache.h"
#include "ops/boxed_call.h"
#include "ops/chunks.h"
#include "ops/dispatch.h"
#include "ops/node.h"

namespace horner {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

// Stands for an absent Tensor of a schema.
at::Tensor nothing(const Call& call) { return at::empty({0}, call.in.v.options()); }

// Every output is contiguous, as the Meta functions say: a compiled graph relies on it.
std::vector<at::Tensor> contiguous(std::vector<at::Tensor> list) {
  for (at::Tensor& x : list) x = x.contiguous();
  return list;
}

bool shares_memory(const at::Tensor& x, const std::vector<at::Tensor>& list) {
  return x.has_storage() && std::any_of(list.begin(), list.end(), [&](const at::Tensor& y) {
           return y.defined() && y.has_storage() && x.is_alias_of(y);
         });
}

enum class Cache { copied, in_place };

// Copied: every output is contiguous and in memory of its own. Copied here are a part that the call did not change and, after
// one token, a state that is the output. A cache was copied when it became longer (CachesAreCopied).
template <Cache kCache = Cache::copied>
void push_result(const Result& result, const Op& op, const Call& call, Stack* stack) {
  at::Tensor o = result.o.contiguous();
  at::Tensor norm = result.norm.defined() ? result.norm.contiguous() : nothing(call);
  std::vector<at::Tensor> state = result.state.parts;
  if (kCache == Cache::copied) {
    std::vector<at::Tensor> taken = call.tensors(op);
    const auto own = [&](at::Tensor& x) {
      x = shares_memory(x, taken) ? x.clone(at::MemoryFormat::Contiguous) : x.contiguous();
      taken.push_back(x);
    };
    own(o);
    own(norm);
    for (at::Tensor& part : state) own(part);
  }
  torch::jit::push(*stack, o, std::move(state), norm);
}

bool differentiable(const at::Tensor& x) {
  return x.defined() && (x.is_floating_point() || x.is_complex());
}

constexpr const char* suffix_of(Cache cache) { return cache == Cache::in_place ? "_in_place" : ""; }

struct Boxed : c10::OperatorKernel {
  explicit Boxed(const Op& which) : op(which) {}
  const Op& op;
};

template <Cache kCache>
struct Forward : Boxed {
  using Boxed::Boxed;
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    const Call call = pop_call(op, stack);
    const CachesAreCopied caches(kCache == Cache::copied);
    push_result<kCache>(run(op, call.in, call.state, call.options), op, call, stack);
  }
};

// Runs the form again, with a graph, and differentiates it. Only a traced graph calls this.
struct Backward : Boxed {
  using Boxed::Boxed;
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    Call call = pop_call(op, stack, true);
    // AutogradBackward, which called this, has switched autograd off: switch it on again. Below a mode of Python's
    // (__torch_dispatch__) conjugation is off, too, and the derivative of a complex product would lack it.
    using c10::DispatchKey;
    constexpr c10::DispatchKeySet needed =
        c10::autograd_dispatch_keyset_with_ADInplaceOrView |
        c10::DispatchKeySet({DispatchKey::Conjugate, DispatchKey::Negative, DispatchKey::ZeroTensor}
        );
    const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    const c10::impl::ForceDispatchKeyGuard with_autograd(keys.included_, keys.excluded_ - needed);
    const at::AutoGradMode with_graph(true);
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& x : call.tensors(op)) {
      leaves.push_back(x.defined() ? x.detach().requires_grad_(differentiable(x)) : x);
    }
    call.set_tensors(op, leaves);
    bool any_state = false;
    for (const at::Tensor& part : call.grad.state.parts) any_state = any_state || part.defined();
    call.options.final_state = any_state;
    call.options.log_norm = call.grad.norm.defined();
    const Result result = run(op, call.in, call.state, call.options);

    variable_list outputs, grads, inputs;
    const auto flows = [&](const at::Tensor& y, const at::Tensor& dy) {
      if (!dy.defined() || !y.requires_grad()) return;
      outputs.push_back(y);
      grads.push_back(dy);
    };
    flows(result.o, call.grad.o);
    if (result.norm.defined()) flows(result.norm, call.grad.norm);
    for (size_t i = 0; i < result.state.parts.size(); ++i)
      flows(result.state.parts[i], call.grad.state.parts[i]);
    for (const at::Tensor& x : leaves) {
      if (differentiable(x)) inputs.push_back(x);
    }
    const variable_list found = torch::autograd::grad(outputs, inputs, grads, {}, false, true);
    std::vector<at::Tensor> all;
    size_t next = 0;
    for (const at::Tensor& x : leaves) {
      const at::Tensor grad = differentiable(x) ? found[next++] : at::Tensor();
      all.push_back(grad.defined() ? grad : differentiable(x) ? at::zeros_like(x) : nothing(call));
    }
    torch::jit::push(*stack, contiguous(std::move(all)));
  }
};

struct MetaForward : Boxed {
  using Boxed::Boxed;
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    const Call call = pop_call(op, stack);
    check_inputs(op, call.in, call.state, call.options);
    const at::Tensor& v = call.in.v;
    const c10::SymInt B = v.sym_size(0), T = v.sym_size(1);
    const c10::SymInt H = call.in.q.defined() ? call.in.q.sym_size(2) : v.sym_size(2);
    const at::ScalarType wide = state_dtype(call.in);
    const at::TensorOptions out =
        v.options().dtype(c10::isComplexType(wide) ? wide : v.scalar_type());
    Result result;
    result.o = at::empty_symint({B, T, H, v.sym_size(3)}, out);
    if (call.options.log_norm) result.norm = at::empty_symint({B, T, H}, v.options().dtype(wide));
    if (call.options.final_state) result.state = final_state(call);
    push_result(result, op, call, stack);
  }

  State final_state(const Call& call) const {
    c10::SymInt tokens = call.in.v.sym_size(1);
    if (!call.state.empty() && call.state.parts[0].dim() > 2)
      tokens = tokens + call.state.parts[0].sym_size(2);
    State state = op.zero_state(call.in, tokens, call.options);
    if (!call.in.cu_seqlens.defined()) return state;
    const auto size_after = [&](int64_t n) {
      return op.zero_state(call.in, n, call.options).parts[0].sym_numel();
    };
    HORNER_CHECK(
        size_after(1) == size_after(2),
        "[{}] the state of a packed batch is as long as its longest sequence, which a traced "
        "graph cannot know: ask for a window, or for no final_state",
        op.name
    );
    for (at::Tensor& part : state.parts) {
      std::vector<c10::SymInt> sizes = part.sym_sizes().vec();
      sizes[0] = call.in.cu_seqlens.sym_size(0) - 1;
      part = at::empty_symint(sizes, part.options());
    }
    return state;
  }
};

struct MetaBackward : Boxed {
  using Boxed::Boxed;
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    const Call call = pop_call(op, stack, true);
    std::vector<at::Tensor> all;
    for (const at::Tensor& x : call.tensors(op)) {
      all.push_back(
          differentiable(x) ? at::empty_symint(x.sym_sizes(), x.options()) : nothing(call)
      );
    }
    torch::jit::push(*stack, all);
  }
};

// Under torch.func (grad, vmap, ..) the plain chunked form runs: its tensor operations have all rules of these transforms,
// where an opaque node would have none.
Result run_transformed(const Op& op, const Call& call) {
  HORNER_CHECK(
      !call.in.cu_seqlens.defined(),
      "[{}] torch.func takes no packed batch: call it for each sequence",
      op.name
  );
  Options options = call.options;
  if (options.form == forms::kAuto) options.form = forms::kChunked;
  const Form* form = op.form(options.form);
  HORNER_CHECK(
      form == nullptr || (form->traces && form->backward == nullptr),
      "[{}] form = {} cannot run under torch.func: take auto",
      op.name,
      options.form
  );
  return run(op, call.in, call.state, options);
}

bool any_transformed(const Call& call, const Op& op) {
  const std::vector<at::Tensor> all = call.tensors(op);
  return std::any_of(all.begin(), all.end(), [](const at::Tensor& x) {
    return x.defined() && is_transformed(x);
  });
}

template <Cache kCache>
struct AutogradForward : Boxed {
  using Boxed::Boxed;
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    const Call call = pop_call(op, stack);
    const CachesAreCopied caches(kCache == Cache::copied);
    const Result y = any_transformed(call, op) ? run_transformed(op, call)
                     : have_memory(op, call.in, call.state)
                         ? run(op, call.in, call.state, call.options)
                         : run_traced(op, call);
    push_result<kCache>(y, op, call, stack);
  }
};

struct AutogradBackward : Boxed {
  using Boxed::Boxed;
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    const Call call = pop_call(op, stack, true);
    variable_list all = call.tensors(op);
    all.push_back(call.grad.o);
    for (const at::Tensor& x : all) {
      HORNER_CHECK(
          !at::GradMode::is_enabled() || !x.defined() || !x.requires_grad(),
          "[{}] has no second derivative: its backward cannot be differentiated again",
          op.name
      );
    }
    const at::AutoDispatchBelowADInplaceOrView below;
    *stack = push_call(op, call, true);
    call_op(op, "_backward", stack);
  }
};

// A batch of torch.func.vmap.
template <Cache kCache>
struct BatchedForward : Boxed {
  using Boxed::Boxed;
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    const Call call = pop_call(op, stack);
    push_result<kCache>(run_transformed(op, call), op, call, stack);
  }
};

// q, k and v take the autocast dtype; decays, write strengths and states keep theirs.
template <Cache kCache>
struct Autocast : Boxed {
  using Boxed::Boxed;
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    Call call = pop_call(op, stack);
    const at::DeviceType device = call.in.v.device().type();
    for (const Input& input : op.inputs) {
      at::Tensor& x = call.in.*input.tensor;
      if (!input.gate && x.defined() && x.is_floating_point() && x.scalar_type() != at::kDouble)
        x = x.to(at::autocast::get_autocast_dtype(device));
    }
    const c10::impl::ExcludeDispatchKeyGuard below(c10::autocast_dispatch_keyset);
    *stack = push_call(op, call);
    call_op(op, suffix_of(kCache), stack);
  }
};

struct ChosenForm : Boxed {
  using Boxed::Boxed;
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    const Call call = pop_call(op, stack);
    check_inputs(op, call.in, call.state, call.options);
    torch::jit::push(*stack, std::string(chosen_form(op, call.in, call.state, call.options).name));
  }
};

template <class F>
void bind(torch::Library& m, const Op& op, const char* suffix) {
  const std::string name = fmt::format("{}{}", op.name, suffix);
  m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<F>(op)));
}

// F for every op, and for its _in_place variant if there is one.
template <template <Cache> class F>
void bind_both(torch::Library& m) {
  for (const Op& op : ops()) {
    bind<F<Cache::copied>>(m, op, suffix_of(Cache::copied));
    if (op.keeps_tokens) bind<F<Cache::in_place>>(m, op, suffix_of(Cache::in_place));
  }
}

}  // namespace

void register_forms(torch::Library& m) {
  bind_both<Forward>(m);
  for (const Op& op : ops()) bind<Backward>(m, op, "_backward");
}

}  // namespace horner

TORCH_LIBRARY(horner, m) {
  using namespace horner;
  m.def("version", [] { return std::string(version()); });
  for (const Op& op : ops()) {
    const std::string arguments = schema_arguments(op, false);
    for (const Cache cache : {Cache::copied, Cache::in_place}) {
      if (cache == Cache::in_place && !op.keeps_tokens) continue;
      const std::string name = fmt::format("{}{}", op.name, suffix_of(cache));
      m.def(fmt::format("{}({}) -> (Tensor, Tensor[], Tensor)", name, arguments).c_str());
    }
    m.def(fmt::format("{}_backward({}) -> Tensor[]", op.name, schema_arguments(op, true)).c_str());
    m.def(fmt::format("{}_form({}) -> str", op.name, arguments).c_str());
    bind<ChosenForm>(m, op, "_form");
  }
}

TORCH_LIBRARY_IMPL(horner, CPU, m) { horner::register_forms(m); }

TORCH_LIBRARY_IMPL(horner, Meta, m) {
  for (const horner::Op& op : horner::ops()) {
    horner::bind<horner::MetaForward>(m, op, "");
    horner::bind<horner::MetaBackward>(m, op, "_backward");
  }
}

TORCH_LIBRARY_IMPL(horner, Autograd, m) {
  horner::bind_both<horner::AutogradForward>(m);
  for (const horner::Op& op : horner::ops())
    horner::bind<horner::AutogradBackward>(m, op, "_backward");
}

TORCH_LIBRARY_IMPL(horner, FuncTorchBatchedDecomposition, m) {
  horner::bind_both<horner::BatchedForward>(m);
}

TORCH_LIBRARY_IMPL(horner, AutocastCPU, m) { horner::bind_both<horner::Autocast>(m); }

TORCH_LIBRARY_IMPL(horner, AutocastCUDA, m) { horner::bind_both<horner::Autocast>(m); }
