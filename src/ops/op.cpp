#include "ops/op.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "core/check.h"
#include "ops/kernel.h"
#include "ops/packed.h"

namespace horner {
namespace {

Form form_named(const Op& op, std::string_view form, const Inputs& in) {
  if (form == "step") {
    HORNER_CHECK(
        in.v.size(1) == 1 || in.cu_seqlens.defined(),
        "[{}] form = step takes one token, got T = {}",
        op.name,
        in.v.size(1)
    );
    return op.recurrent;
  }
  const Form f = form == "recurrent" ? op.recurrent : form == "parallel" ? op.parallel : op.chunked;
  HORNER_CHECK(f != nullptr, "[{}] has no {} form", op.name, form);
  return f;
}

}  // namespace

int64_t State::bytes() const {
  int64_t total = 0;
  for (const at::Tensor& part : parts) total += int64_t(part.nbytes());
  return total;
}

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

std::string_view chosen_form(
    const Op& op, const Inputs& in, const State& state, const Options& options
) {
  if (const Kernel* kernel = chosen_kernel(op, in, state, options)) return kernel->form;
  if (options.form != "auto") return options.form;
  if (in.cu_seqlens.defined()) {  // the longest sequence decides for all
    const Span longest = longest_sequence(sequence_starts(op, in));
    return chosen_form(op, tokens(op, in, longest.start, longest.length), state, options);
  }
  if (in.v.size(1) == 1 && options.causal) return "step";
  return op.choose != nullptr ? op.choose(in, state, options) : "chunked";
}

Result run(const Op& op, const Inputs& in, const State& state, const Options& options) {
  const c10::impl::ExcludeDispatchKeyGuard wide(c10::autocast_dispatch_keyset
  );  // fp32 inside, always
  check_inputs(op, in, state, options);
  const Kernel* kernel = chosen_kernel(op, in, state, options);
  const std::string_view name = kernel ? kernel->form : chosen_form(op, in, state, options);
  const Form plain = kernel ? nullptr : form_named(op, name, in);
  const auto form = [&](const Inputs& x, const State& s, const Options& o) {
    return kernel ? run_kernel(op, *kernel, x, s, o) : plain(x, s, o);
  };
  const bool packed = in.cu_seqlens.defined(), whole = kernel && kernel->packs && kernel->packs(in);
  if (packed && whole) sequence_starts(op, in);  // checks them
  Result result =
      packed && !whole ? run_packed(op, form, in, state, options) : form(in, state, options);
  result.form = name;
  return result;
}

Result merge(const Result& a, const Result& b) {
  const at::Tensor norm = at::logaddexp(a.norm, b.norm);
  const auto share = [&](const Result& x) {
    return x.o * (x.norm - norm).exp().unsqueeze(-1).to(x.o.scalar_type());
  };
  return {share(a) + share(b), {}, norm, a.form};
}

}  // namespace horner
