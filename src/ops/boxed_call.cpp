#include "ops/boxed_call.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "core/options.h"

namespace horner {
namespace {

using torch::jit::Stack;

template <class T>
std::string schema_type() {
  if constexpr (std::is_same_v<T, bool>)
    return "bool";
  else if constexpr (std::is_same_v<T, int64_t>)
    return "int";
  else if constexpr (std::is_same_v<T, double>)
    return "float";
  else if constexpr (std::is_same_v<T, std::string>)
    return "str";
  else if constexpr (std::is_same_v<T, std::optional<int64_t>>)
    return "int?";
  else if constexpr (std::is_same_v<T, std::optional<double>>)
    return "float?";
  else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
    return "int[]";
  else if constexpr (std::is_same_v<T, std::vector<double>>)
    return "float[]";
  else
    return "str[]";
}

std::string schema_option(const Field& field) {
  const std::string type = std::visit(
      [](const auto* value) { return schema_type<std::decay_t<decltype(*value)>>(); }, field.value
  );
  const Json value = get_json(field);
  std::string initial = value.is_null() ? "None" : value.dump();
  if (value.is_boolean()) initial = value.get<bool>() ? "True" : "False";
  return fmt::format("{} {}={}", type, field.name, initial);
}

Fields option_fields(const Op& op, Options& options) {
  Fields taken;
  for (Field& field : fields(options)) {
    if (std::find(op.options.begin(), op.options.end(), field.name) != op.options.end()) {
      taken.push_back(std::move(field));
    }
  }
  return taken;
}

at::Tensor optional_tensor(const c10::IValue& value) {
  return value.isNone() ? at::Tensor() : value.toTensor();
}
c10::IValue optional_value(const at::Tensor& x) {
  return x.defined() ? c10::IValue(x) : c10::IValue();
}

}  // namespace

void Call::set_tensors(const Op& op, const std::vector<at::Tensor>& list) {
  for (size_t i = 0; i < op.inputs.size(); ++i) in.*op.inputs[i].tensor = list[i];
  state.parts.assign(list.begin() + int64_t(op.inputs.size()), list.end());
}

std::string schema_arguments(const Op& op, bool backward) {
  std::string text;
  for (const auto& [name, tensor, optional, gate] : op.inputs) {
    text += fmt::format(
        "Tensor{} {}{}, ", optional ? "?" : "", name, optional && !backward ? "=None" : ""
    );
  }
  text +=
      backward
          ? "Tensor[]? state, Tensor? cu_seqlens, Tensor? do, Tensor?[] dstate, Tensor? dnorm, *"
          : "Tensor[]? state=None, Tensor? cu_seqlens=None, *";
  Options options = op.defaults;
  for (const Field& field : option_fields(op, options)) text += ", " + schema_option(field);
  return text;
}

Call pop_call(const Op& op, Stack* stack, bool backward) {
  Call call;
  call.options = op.defaults;
  const Fields fields = option_fields(op, call.options);
  const size_t count = op.inputs.size() + 2 + (backward ? 3 : 0) + fields.size();
  auto next = stack->end() - int64_t(count);
  for (const Input& input : op.inputs) call.in.*input.tensor = optional_tensor(*next++);
  if (!next->isNone()) call.state.parts = next->toTensorVector();
  ++next;
  call.in.cu_seqlens = optional_tensor(*next++);
  if (backward) {
    call.grad.o = optional_tensor(*next++);
    for (const c10::IValue& part : (next++)->toListRef())
      call.grad.state.parts.push_back(optional_tensor(part));
    call.grad.norm = optional_tensor(*next++);
  }
  for (const Field& field : fields) {
    std::visit(
        [&](auto* value) { *value = next->to<std::decay_t<decltype(*value)>>(); }, field.value
    );
    ++next;
  }
  torch::jit::drop(*stack, count);
  return call;
}

Stack push_call(const Op& op, const Call& call, bool backward) {
  Stack stack;
  const std::vector<at::Tensor> tensors = call.tensors(op);
  for (size_t i = 0; i < op.inputs.size(); ++i) stack.push_back(optional_value(tensors[i]));
  stack.emplace_back(call.state.parts);
  stack.push_back(optional_value(call.in.cu_seqlens));
  if (backward) {
    c10::List<std::optional<at::Tensor>> state;
    for (const at::Tensor& part : call.grad.state.parts) {
      state.push_back(part.defined() ? std::optional(part) : std::nullopt);
    }
    stack.push_back(optional_value(call.grad.o));
    stack.emplace_back(state);
    stack.push_back(optional_value(call.grad.norm));
  }
  Options options = call.options;
  for (const Field& field : option_fields(op, options)) {
    std::visit([&](const auto* value) { stack.emplace_back(*value); }, field.value);
  }
  return stack;
}

void call_op(const Op& op, std::string_view suffix, Stack* stack) {
  const std::string name = fmt::format("horner::{}{}", op.name, suffix);
  c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "").callBoxed(stack);
}

}  // namespace horner
