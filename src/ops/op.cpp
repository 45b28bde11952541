#include "ops/op.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>

#include "core/check.h"

namespace horner {
int64_t State::bytes() const {
  int64_t total = 0;
  for (const at::Tensor& part : parts) total += int64_t(part.nbytes());
  return total;
}

at::Tensor& Saved::operator[](std::string_view name) {
  for (auto& [own, tensor] : tensors) {
    if (own == name) return tensor;
  }
  return tensors.emplace_back(name, at::Tensor()).second;
}

at::Tensor Saved::get(std::string_view name) const {
  for (const auto& [own, tensor] : tensors) {
    if (own == name) return tensor;
  }
  return {};
}

const Form* Op::form(std::string_view wanted) const {
  const auto it =
      std::find_if(forms.begin(), forms.end(), [&](const Form& f) { return f.name == wanted; });
  return it == forms.end() ? nullptr : &*it;
}

bool Op::takes(const Input& wanted) const {
  return std::any_of(inputs.begin(), inputs.end(), [&](const Input& input) {
    return input.tensor == wanted.tensor;
  });
}

bool Form::one_token() const {
  return name == forms::kStep || name == forms::kFusedStep || name == forms::kStepKernel;
}

Form kernel_form(std::string_view name) {
  return {.name = name, .place = Place::cuda, .traces = false};
}

Form step_form(Form::Forward definition) {
  const auto refuses = [](const Inputs& in, const State&, const Options&) {
    return in.v.size(1) == 1 ? "" : fmt::format("it takes one token, got T = {}", in.v.size(1));
  };
  const auto suits = [](const Inputs& in, const State&, const Options& options) {
    return in.v.size(1) == 1 && options.causal;
  };
  return {.name = forms::kStep, .forward = definition, .refuses = refuses, .suits = suits};
}

bool never(const Inputs&, const State&, const Options&) { return false; }

State row_of(const State& state, int64_t row) {
  State one;
  for (const at::Tensor& part : state.parts) one.parts.push_back(part.narrow(0, row, 1));
  return one;
}

State stack_rows(const std::vector<State>& rows) {
  State all;
  for (size_t i = 0; i < rows.at(0).parts.size(); ++i) {
    int64_t longest = 0;
    const bool cache = rows[0].parts[i].dim() == 4;
    for (const State& row : rows) {
      if (cache) longest = std::max(longest, row.parts[i].size(2));
    }
    std::vector<at::Tensor> parts;
    for (const State& row : rows) {
      const at::Tensor& x = row.parts[i];
      parts.push_back(cache ? at::constant_pad_nd(x, {0, 0, longest - x.size(2), 0}) : x);
    }
    all.parts.push_back(at::cat(parts, 0));
  }
  return all;
}

Inputs tokens(const Op& op, const Inputs& in, int64_t start, int64_t length) {
  Inputs some;
  for (const Input& input : op.inputs) {
    const at::Tensor& x = in.*input.tensor;
    if (x.defined()) some.*input.tensor = x.narrow(1, start, length);
  }
  return some;
}

std::vector<at::Tensor> gradient_tensors(const Op& op, const Inputs& in, const State& state) {
  std::vector<at::Tensor> list;
  for (const Input& input : op.inputs) list.push_back(in.*input.tensor);
  list.insert(list.end(), state.parts.begin(), state.parts.end());
  return list;
}

Result merge(const Result& a, const Result& b) {
  const at::Tensor norm = at::logaddexp(a.norm, b.norm);
  const auto share = [&](const Result& x) {
    return x.o * (x.norm - norm).exp().unsqueeze(-1).to(x.o.scalar_type());
  };
  return {share(a) + share(b), {}, norm, a.form};
}

}  // namespace horner
