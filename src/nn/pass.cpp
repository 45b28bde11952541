#include "nn/pass.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include "core/check.h"
#include "core/memory.h"
#include "nn/fused/fused.h"
#include "nn/fused/gates.h"
#include "nn/part.h"
#include "nn/precision.h"
#include "ops/attention/cache.h"
#include "ops/dispatch.h"

namespace horner {

Pass::Pass(const State& before, const Context& context, bool wants_core)
    : context_(context), before_(before), wants_core_(wants_core) {
  if (!context.cu_seqlens.defined()) return;
  HORNER_CHECK(
      has_memory(context.cu_seqlens),
      "a packed batch cannot be traced or transformed: its lengths decide what runs"
  );
  const at::Tensor starts = context.cu_seqlens.to(at::kCPU, at::kLong).contiguous();
  starts_.assign(starts.data_ptr<int64_t>(), starts.data_ptr<int64_t>() + starts.numel());
}

at::Tensor Pass::carried() {
  if (before_.empty()) return {};
  HORNER_CHECK(next_ < before_.parts.size(), "the state has {} parts, more are read", next_);
  return before_.parts[next_++];
}

void Pass::carry(const at::Tensor& part) {
  // A view would keep all the tokens that it was cut from; a cache is a view with room to grow.
  if (!has_memory(part)) {
    after_.parts.push_back(part.contiguous());
    return;
  }
  const bool whole = has_room(part) || is_fixed(part) || part.storage().nbytes() <= part.nbytes();
  after_.parts.push_back(whole ? part : part.clone());
}

State Pass::rest() {
  State own;
  while (next_ < before_.parts.size()) own.parts.push_back(before_.parts[next_++]);
  return own;
}

at::Tensor Pass::position(const at::Tensor& x) {
  return over_time(x, [](const at::Tensor& y, at::Tensor& seen) {
    const at::Tensor t = at::arange(y.size(1), y.device()).unsqueeze(0);
    const at::Tensor place = seen.defined() ? seen.unsqueeze(1) + t : t;
    seen = seen.defined() ? seen + y.size(1)
                          : at::full({y.size(0)}, y.size(1), y.options().dtype(at::kLong));
    return place;
  });
}

void Pass::skip_position(const at::Tensor& seen) {
  carried();
  carry(seen);
}

at::Tensor Pass::length(const at::Tensor& x) {
  return each(x, [](const at::Tensor& y) {
    return at::full({y.size(0), 1}, y.size(1), y.options().dtype(at::kLong));
  });
}

at::Tensor Pass::running_sum(const at::Tensor& x) {
  return over_time(x, [](const at::Tensor& y, at::Tensor& before) {
    if (!before.defined()) before = at::zeros_like(y.sum(1));
    const at::Tensor sum = at::cat({before.unsqueeze(1), y}, 1).cumsum(1);
    before = sum.select(1, y.size(1));
    return sum.narrow(1, 1, y.size(1));
  });
}

Options Pass::with_form(Options options) const {
  options.form = context_.form;
  options.chunk = context_.chunk;
  options.final_state = options.causal && context_.keep_state;
  return options;
}

Result Pass::run(const Op& op, Inputs in, const State& before, const Options& options) {
  const Part timed(parts::kOp);
  if (in.q.defined()) in.q = in.q.to(in.v.scalar_type());
  if (in.k.defined()) in.k = in.k.to(in.v.scalar_type());
  in.cu_seqlens = context_.cu_seqlens;
  Result result = dispatch(op, in, before, with_form(options));
  for (const at::Tensor& part : result.state.parts) carry(part);
  core = {&op, in, options, {}, {}, result.o, {}};
  return result;
}

Result Pass::run(std::string_view name, Inputs in, Options options) {
  return run(find_op(name), std::move(in), rest(), options);
}

Result Pass::run_first(std::string_view name, Inputs in, Options options) {
  const Op& op = find_op(name);
  State own;
  if (!before_.empty()) {
    Inputs shapes;
    for (const Input& input : op.inputs) {
      const at::Tensor& x = in.*input.tensor;
      if (x.defined()) shapes.*input.tensor = x.to(at::kMeta);
    }
    const size_t count = op.zero_state(shapes, 0, options).parts.size();
    while (own.parts.size() < count) own.parts.push_back(carried());
  }
  return run(op, std::move(in), own, options);
}

at::Tensor Pass::delayed(const at::Tensor& x, int64_t w, size_t part) const {
  const auto before = [&](const at::Tensor& ring, const at::Tensor& y) {  // ring (B,G,w|1,X)
    const at::Tensor past = ring.defined()
                                ? ring.transpose(1, 2).to(y.scalar_type())
                                : at::zeros({y.size(0), w, y.size(2), y.size(3)}, y.options());
    return at::cat({past, y}, 1).narrow(1, 0, y.size(1));
  };
  at::Tensor ring = before_.empty() ? at::Tensor() : before_.parts.at(next_ + part);
  if (is_fixed(ring)) ring = oldest(ring, before_.parts.at(next_ + 2));
  if (starts_.empty()) return before(ring, x);
  std::vector<at::Tensor> each;
  for (size_t j = 0; j + 1 < starts_.size(); ++j) {
    const at::Tensor y = x.narrow(1, starts_[j], starts_[j + 1] - starts_[j]);
    each.push_back(before(ring.defined() ? ring.narrow(0, int64_t(j), 1) : ring, y));
  }
  return at::cat(each, 1);
}

Result Pass::run_gated(Inputs qkv, const at::Tensor& i, const at::Tensor& f, Options options) {
  Inputs in = qkv;
  in.i = i;
  in.g = f;
  Options gated = options;
  gated.norm = "bounded";
  Result result = run("linear", in, gated);
  if (!wants_core_) return result;
  core = {core.op, qkv, options, {}, {}, result.o, {}};  // without the stabiliser
  core.in.k = qkv.k * i.exp().unsqueeze(-1);
  core.in.g = f;
  Inputs ones = core.in;
  ones.v = at::ones_like(qkv.v.narrow(3, 0, 1));
  core.eta = dispatch(*core.op, ones, {}, options).o.squeeze(-1).abs().clamp_min(1.0);
  return result;
}

Result Pass::run_learned(Inputs in, Options options, const at::Tensor& c) {
  const Part timed(parts::kOp);
  in.q = in.q.to(in.v.scalar_type());
  in.k = in.k.to(in.v.scalar_type());
  in.cu_seqlens = context_.cu_seqlens;
  const Op& op = find_op("power");
  const State before = rest();
  const bool learning = !has_memory(c) || (c.requires_grad() && at::GradMode::is_enabled());
  if (!learning || wants_core_) {  // waits for a GPU
    const at::Tensor numbers = c.detach().to(at::kCPU, at::kDouble).contiguous();
    const double* first = numbers.data_ptr<double>();
    options.coefficients.assign(first, first + numbers.numel());
  }
  Result result;
  if (learning) {
    at::Tensor o;
    for (int64_t n = 0; n <= options.order; ++n) {
      Options one = with_form(options);
      one.coefficients.assign(size_t(options.order) + 1, 0.0);
      one.coefficients[size_t(n)] = 1.0;
      result = dispatch(op, in, before, one);  // the state does not depend on the coefficients
      const at::Tensor term = c.select(0, n).to(result.o.scalar_type()) * result.o;
      o = o.defined() ? o + term : term;
    }
    result.o = o;
  } else {
    result = dispatch(op, in, before, with_form(options));
  }
  for (const at::Tensor& part : result.state.parts) carry(part);
  core = {&op, in, options, {}, {}, result.o, {}};
  return result;
}

at::Tensor Pass::divide(const at::Tensor& o, const at::Tensor& eta) {
  core.eta = core.eta.defined() ? core.eta * eta : eta;
  const bool each_head = eta.sizes() == o.sizes().slice(0, o.dim() - 1);
  core.o = each_head && fusable({o}) ? scale_heads(o, wide(eta).reciprocal())
                                     : o / eta.unsqueeze(-1).to(o.scalar_type());
  return core.o;
}

at::Tensor Pass::add_skip(const at::Tensor& o, const at::Tensor& Du, const at::Tensor& skip) {
  core.skip = skip;
  core.o = o + Du.to(o.scalar_type());  // skip v itself has no gradient where v nearly vanishes
  return core.o;
}

}  // namespace horner
