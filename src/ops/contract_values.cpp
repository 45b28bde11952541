// Properties that compare numbers.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <optional>

#include "ops/chunks.h"
#include "ops/contract_parts.h"
#include "ops/power/power.h"

namespace horner::contract_parts {

Measure forms_agree(const Case& c) {
  Measure m{0, 0};
  for (const int64_t T : {c.dims.T, int64_t(1)}) {
    Case some = c;
    some.dims.T = T;
    const Inputs in = form_inputs(some);
    if (c.form->refuses != nullptr && !refusal(*c.form, in, {}, with(c)).empty()) continue;
    const Result exact = truth(some, in);
    m.bound = std::max(m.bound, allowed(some, in, exact));
    for_each_chunk(some, [&](const Options& o) {
      m.error = std::max(m.error, result_error(c, run(c.op, in, {}, o), exact));
    });
  }
  return m;
}

// Two results joined in time; the state is that of the second.
static Result joined(const Result& first, Result second) {
  second.o = at::cat({first.o, second.o}, 1);
  if (second.norm.defined()) second.norm = at::cat({first.norm, second.norm}, 1);
  return second;
}

// The tokens in pieces, each from the state of the one before it.
template <class F>
static Result in_pieces(
    const Case& c, const Inputs& in, const std::vector<int64_t>& cuts, F&& one
) {
  Result all;
  int64_t start = 0;
  for (const int64_t end : cuts) {
    const Result next = one(tokens(c.op, in, start, end - start), all.state);
    all = start == 0 ? next : joined(all, next);
    start = end;
  }
  return all;
}

// Error of the case's form in pieces, and what the plain form in the same pieces and as a whole may err.
static Measure pieces(const Case& c, const std::vector<int64_t>& cuts) {
  const Inputs in = form_inputs(c);
  const Result exact = truth(c, in);
  Measure m{0, allowed(c, in, exact)};
  const auto add_error = [&](const Options& o) {
    const Result got = in_pieces(c, in, cuts, [&](const Inputs& x, const State& s) {
      return run_else_auto(c, x, s, o);
    });
    m.error = std::max(m.error, result_error(c, got, exact));
  };
  const bool tokens_alone = int64_t(cuts.size()) == c.dims.T;  // then chunks are all the same
  tokens_alone ? add_error(with(c)) : for_each_chunk(c, add_error);
  if (c.exact()) return m;
  std::optional<RoundedProducts> low;
  if (c.type() != at::kFloat) low.emplace();
  const Result plain = in_pieces(c, in, cuts, [&](const Inputs& x, const State& s) {
    return run(c.op, x, s, with(c, plain_form(c), 64));
  });
  m.bound = std::max(m.bound, 2 * result_error(c, plain, exact) + 1e-5);
  return m;
}

Measure splits(const Case& c) {
  if (c.dims.T < 2) return {};
  Measure worst{0, 1};
  for (const int64_t s : {int64_t(1), c.dims.T / 2, c.dims.T - 1}) {
    const Measure m = pieces(c, {s, c.dims.T});
    if (m.error / m.bound >= worst.error / worst.bound) worst = m;
  }
  return worst;
}

// Token by token, by the form itself where it takes one, else by what auto takes.
Measure steps(const Case& c) {
  Case whole = c;
  whole.dims.T = std::max<int64_t>(c.dims.T, 37);
  std::vector<int64_t> cuts;
  for (int64_t t = 1; t <= whole.dims.T; ++t) cuts.push_back(t);
  return pieces(whole, cuts);
}

Measure packs(const Case& c) {
  const int64_t T = c.dims.T, cut = T / 3;
  Case one = c;
  one.dims.B = 1;
  const Inputs in = form_inputs(one);
  std::vector<at::Tensor> alone;
  for (const auto& [start, end] : {std::pair{int64_t(0), cut}, std::pair{cut, T}}) {
    if (start < end) alone.push_back(truth(c, tokens(c.op, in, start, end - start)).o);
  }
  const at::Tensor exact = at::cat(alone, 1);
  Measure m{0, allowed(c, in, truth(c, in))};
  for_each_chunk(c, [&](const Options& o) {
    Inputs packed = in;
    packed.cu_seqlens = at::tensor({int64_t(0), cut, cut, T}, at::kInt).to(c.device);
    const Result all = run(c.op, packed, {}, o);
    m.error = std::max(m.error, tensor_error(c, all.o, exact));
    if (!o.final_state || cut == 0) return;
    const Result again =
        run_else_auto(c, packed, all.state, o);  // each sequence starts from its own row
    const Inputs start = tokens(c.op, in, 0, cut);
    const at::Tensor second = truth(c, start, truth(c, start).state).o;
    m.error = std::max(m.error, tensor_error(c, again.o.narrow(1, 0, cut), second));
  });
  return m;
}

Measure grouped(const Case& c) {
  Case some = c;
  some.dims.G = 2;
  some.dims.H = 6;
  const Inputs in = form_inputs(some);
  const Inputs repeated = map_inputs(c, in, [&](const at::Tensor& x) {
    return x.size(2) == 6 ? x : x.repeat_interleave(3, 2);
  });
  Result exact;
  exact.o = truth(some, repeated).o;
  Measure m{0, c.exact() ? kExact : allowed(some, in, truth(some, in))};
  for_each_chunk(c, [&](const Options& o) {
    m.error = std::max(m.error, tensor_error(c, run(c.op, in, {}, o).o, exact.o));
  });
  return m;
}

// The map from v to o is linear: o(x + 2 y) = o(x) + 2 o(y).
Measure linear_in_v(const Case& c) {
  Case another = c;
  another.seed += 1;
  const Inputs in = form_inputs(c);
  Inputs other = in, mixed = in;
  other.v = form_inputs(another).v;
  mixed.v = in.v + 2 * other.v;
  const Options o = with(c);
  const at::Tensor sum = run(c.op, in, {}, o).o + 2 * run(c.op, other, {}, o).o;
  return {relative_error(run(c.op, mixed, {}, o).o, sum), kExact};
}

// The error on `given`, whose numbers are those of `in`; one token too, which has kernels of its own.
static Measure layout_error(const Case& c, const Inputs& in, const Inputs& given) {
  const Result exact = truth(c, in), first = truth(c, tokens(c.op, in, 0, 1));
  Measure m{0, allowed(c, in, exact)};
  for_each_chunk(c, [&](const Options& o) {
    m.error = std::max(m.error, result_error(c, run(c.op, given, {}, o), exact));
    const Result one = run_else_auto(c, tokens(c.op, given, 0, 1), {}, o);
    m.error = std::max(m.error, result_error(c, one, first));
  });
  return m;
}

Measure any_strides(const Case& c) {
  const Inputs in = form_inputs(c);
  return layout_error(c, in, map_inputs(c, in, [](const at::Tensor& x) {
                        return x.transpose(1, x.dim() - 1).contiguous().transpose(1, x.dim() - 1);
                      }));
}

// Keys and queries of one head that expand gives to all of them: the memory of a head is read by each.
Measure expanded_heads(const Case& c) {
  Case wide = c;
  wide.dims.G = wide.dims.H = std::max<int64_t>(3, c.dims.G);
  const Inputs in = form_inputs(wide);
  Inputs expanded = in;
  for (at::Tensor* x : {&expanded.q, &expanded.k}) {
    if (x->defined()) *x = x->narrow(2, 0, 1).contiguous().expand(x->sizes());
  }
  const Inputs copied = map_inputs(wide, expanded, [](const at::Tensor& x) {
    return x.clone(at::MemoryFormat::Contiguous);
  });
  return layout_error(wide, copied, expanded);
}

static Inputs to_type(const Case& c, const Inputs& in, at::ScalarType type) {
  return map_inputs(c, in, [&](const at::Tensor& x) {
    const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
    return x.to(x.is_complex() ? c10::toComplexType(wide) : type);
  });
}

// Error of the type against fp64 on the same rounded inputs. On a CPU the bound is fixed for each type. On a GPU twice the
// error of the plain form, whose products are rounded as on tensor cores, is also allowed.
static Measure narrow(const Case& c, at::ScalarType type, double bound) {
  const Inputs rounded = to_type(c, sample_inputs(c, at::kDouble), type);
  const at::Tensor exact =
      run(c.op, to_type(c, rounded, at::kDouble), {}, with(c, c.op.forms[0].name)).o;
  if (c.form->refuses != nullptr && !refusal(*c.form, rounded, {}, with(c, 16, false)).empty())
    return {.applies = false};
  const auto error_of = [&](std::string_view form) {
    const at::Tensor got = run(c.op, rounded, {}, with(c, form, 16, false)).o;
    return relative_error(got.to(exact.scalar_type()), exact);
  };
  if (c.device.is_cpu()) return {error_of(c.form_name()), bound};
  const double own = error_of(c.form_name());
  std::optional<RoundedProducts> low;
  if (type != at::kFloat) low.emplace();
  return {own, std::max(bound, 2 * error_of(plain_form(c)) + 1e-5)};
}

// Every |q||k| at the largest score that is trusted: the error of fp32 against fp64, of which three digits should be right.
Measure large_scores(const Case& c) {
  Inputs in = sample_inputs(c, at::kDouble);
  const double scale = c.variant.options.scale.value_or(1 / std::sqrt(double(c.dims.K)));
  const double r = std::min(1e4, trusted_score(c.variant.options));
  for (at::Tensor* x : {&in.q, &in.k}) *x = *x / x->norm(2, -1, true) * std::sqrt(r / scale);
  in = map_inputs(c, in, [](const at::Tensor& x) { return x.to(at::kFloat); });
  const at::Tensor exact = run(c.op, to_wide(c, in), {}, with(c, c.op.forms[0].name, 16, false)).o;
  Measure m{0, 1e-2};
  for_each_chunk(c, [&](Options o) {
    o.final_state = false;
    m.error = std::max(m.error, relative_error(run(c.op, in, {}, o).o, exact));
  });
  return m;
}

Measure single_precision(const Case& c) { return narrow(c, at::kFloat, 1e-4); }
Measure bfloat_precision(const Case& c) { return narrow(c, at::kBFloat16, 1.0 / 128); }
Measure half_precision(const Case& c) { return narrow(c, at::kHalf, 1.0 / 1024); }

}  // namespace horner::contract_parts
