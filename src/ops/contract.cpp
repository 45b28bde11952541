#include "ops/contract.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "core/check.h"
#include "ops/chunks.h"
#include "ops/contract_parts.h"
#include "ops/errors.h"

namespace horner {
namespace contract_parts {

static bool is_sequence(const Case& c) { return c.form == nullptr || !c.form->one_token(); }
static bool is_causal_sequence(const Case& c) { return c.variant.options.causal && is_sequence(c); }
static bool carries(const Case& c) { return c.variant.options.causal && c.keeps_state; }
static bool carries_sequence(const Case& c) { return carries(c) && is_sequence(c); }
static bool has_groups(const Case& c) { return c.op.grouped(); }
static bool is_exact(const Case& c) { return c.exact(); }
static bool has_gradient(const Case& c) {
  return c.form == nullptr || c.form->traces || c.form->backward != nullptr;
}
template <at::ScalarType type>
static bool takes(const Case& c) {
  const auto& types = c.form == nullptr ? std::vector<at::ScalarType>() : c.form->types;
  return types.empty() || std::find(types.begin(), types.end(), type) != types.end();
}

// Forms that compute token by token or chunk by chunk. All pairs at once give NaN to every output of the row.
static bool isolates(const Case& c) {
  return is_causal_sequence(c) &&
         (c.form_name() == forms::kRecurrent || c.form_name() == forms::kRecurrentKernel ||
          c.form_name() == forms::kChunked);
}
static bool has_scores(const Case& c) {  // a series that a state sums
  return c.op.series && !c.op.keeps_tokens && takes<at::kFloat>(c) && is_sequence(c);
}

// The forms for long sequences.
static bool runs_long(const Case& c) {
  return c.form_name() == forms::kChunked || c.form_name() == forms::kChunkedKernel;
}
static bool is_definition(const Case& c) { return c.form_name() == c.op.forms[0].name; }

Options with(const Case& c, std::string_view form, int64_t chunk, bool state) {
  Options options = c.variant.options;
  options.form = std::string(form);
  options.chunk = chunk;
  options.final_state = state && options.causal && c.keeps_state;
  return options;
}

Options with(const Case& c, int64_t chunk, bool state) {
  return with(c, c.form_name(), chunk, state);
}

Inputs form_inputs(const Case& c) {
  const Inputs in = sample_inputs(c, c.type());
  if (c.exact()) return in;
  Inputs wide_gates = in;
  for (const Input& input : c.op.inputs) {
    at::Tensor& x = wide_gates.*input.tensor;
    if (input.gate && x.defined()) x = x.to(at::kFloat);
  }
  return wide_gates;
}

Inputs to_wide(const Case& c, const Inputs& in) {
  return map_inputs(c, in, [](const at::Tensor& x) {
    return x.to(x.is_complex() ? at::kComplexDouble : at::kDouble);
  });
}

double tensor_error(const Case& c, const at::Tensor& a, const at::Tensor& b) {
  if (c.exact()) return relative_error(a, b);
  return a.sizes() == b.sizes() ? errors(a, b.to(at::kDouble)).rms
                                : std::numeric_limits<double>::infinity();
}

double result_error(const Case& c, const Result& a, const Result& b) {
  double error = tensor_error(c, a.o, b.o);
  if (a.norm.defined()) error = std::max(error, tensor_error(c, a.norm, b.norm));
  const auto absolute = [&](const State& s) {
    return c.op.absolute == nullptr ? s : c.op.absolute(s);
  };
  const State x = absolute(a.state), y = absolute(b.state);
  for (size_t i = 0; i < std::min(x.parts.size(), y.parts.size()); ++i)
    error = std::max(error, tensor_error(c, x.parts[i], y.parts[i]));
  return error;
}

Result truth(const Case& c, const Inputs& in, const State& state) {
  State first;
  for (const at::Tensor& x : state.parts)
    first.parts.push_back(x.is_floating_point() ? x.to(at::kDouble) : x);
  return run(c.op, to_wide(c, in), first, with(c, c.op.forms[0].name));
}

// A step reads what it has written into a state, as the definition does; a chunk forms its pairs.
std::string_view plain_form(const Case& c) {
  return is_sequence(c) ? forms::kChunked : c.op.forms[0].name;
}

double allowed(const Case& c, const Inputs& in, const Result& exact) {
  if (c.exact()) return kExact;
  std::optional<RoundedProducts> low;
  if (c.type() != at::kFloat) low.emplace();
  const Result plain = run(c.op, in, {}, with(c, plain_form(c), 64));
  return 2 * result_error(c, plain, exact) + 1e-5;
}

Result run_else_auto(const Case& c, const Inputs& in, const State& state, const Options& options) {
  try {
    return run(c.op, in, state, options);
  } catch (const UsageError&) {  // refused: a kernel that takes no such part, or no state
    Options any = options;
    any.form = forms::kAuto;
    return run(c.op, in, state, any);
  }
}

}  // namespace contract_parts

std::string_view Case::form_name() const { return form == nullptr ? op.forms[0].name : form->name; }

at::ScalarType Case::type() const {
  const bool any = form == nullptr || form->types.empty();
  return any ? at::kDouble : form->types[0];
}

bool Case::exact() const { return type() == at::kDouble; }

const std::vector<Property>& contract() {
  using namespace contract_parts;
  static const std::vector<Property> list = {
      {"forms agree", "the form = the definition, chunk 1, 7, 16, 64, T", is_sequence, forms_agree},
      {"splits anywhere", "whole = two parts with the carried state", carries_sequence, splits},
      {"steps", "whole = one token at a time", carries, steps},
      {"packs", "a packed batch = its sequences alone", is_sequence, packs},
      {"causal", "the future moves no bit of the past", is_causal_sequence, causal},
      {"independent", "batch rows and heads move no bit of each other", nullptr, independent},
      {"NaN in its row", "a NaN reaches no other batch row or head", nullptr, nan_stays},
      {"NaN in its chunk",
       "a NaN reaches no earlier output; in a chunked form, none before its chunk",
       isolates,
       nan_waits},
      {"grouped heads", "H query heads on G states = states repeated", has_groups, grouped},
      {"gradients",
       "derivatives of o, norm and state, by inputs and state",
       has_gradient,
       gradients},
      {"linear in v", "o(x + 2y) = o(x) + 2 o(y)", is_exact, linear_in_v},
      {"any strides", "non-contiguous inputs give the same", nullptr, any_strides},
      {"expanded heads", "one head's q and k for all heads = copies", has_groups, expanded_heads},
      {"state size", "the state is as large as said", carries, state_size},
      {"same bits", "the same seed gives the same bits", nullptr, same_bits},
      {"fp32 error", "against fp64", takes<at::kFloat>, single_precision},
      {"bf16 error", "against fp64 on the rounded inputs", takes<at::kBFloat16>, bfloat_precision},
      {"fp16 error", "against fp64 on the rounded inputs", takes<at::kHalf>, half_precision},
      {"large scores", "fp32 where power's states keep 3 digits", has_scores, large_scores},
      {"long time", "65,536 tokens stay finite: no decay, -20, a reset", runs_long, long_time},
      {"refuses", "wrong input is refused in one line", is_definition, refuses},
  };
  return list;
}

Measure measured(const Property& property, const Case& c) {
  Measure m = property.measure(c);
  for (uint64_t draw = 1; draw < 4 && !m.holds() && !c.exact(); ++draw) {
    const Case other{c.op, c.variant, c.dims, c.device, c.seed + 100 * draw, c.form, c.keeps_state};
    m.bound = std::max(m.bound, property.measure(other).bound);
  }
  return m;
}

namespace {

// Whether the form can run the case, if need be without the state or the log-normaliser.
bool takes_case(Case& c) {
  const Inputs in = contract_parts::form_inputs(c);
  const bool norm = c.variant.options.log_norm;
  for (const bool state : {true, false}) {
    for (const bool with_norm : {norm, false}) {
      c.keeps_state = state;
      c.variant.options.log_norm = with_norm;
      if (refusal(*c.form, in, {}, contract_parts::with(c)).empty()) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<Case> cases_of(
    const Op& op, const Form& form, const Dims& dims, at::Device device, uint64_t seed
) {
  std::vector<Dims> shapes = {dims};
  if (form.place == Place::cuda)
    shapes = {
        dims,
        {.B = 2, .T = 67, .H = 4, .G = 2, .K = 16, .V = 64},
        {.B = 2, .T = 67, .H = 4, .G = 2, .K = 64, .V = 64},
        {.B = 1, .T = 131, .H = 4, .G = 2, .K = 128, .V = 128}};
  std::vector<Case> list;
  for (const Variant& variant : op.variants) {
    for (Dims own : shapes) {
      if (form.one_token()) own.T = 1;
      if (form.one_token() && !variant.options.causal) continue;
      if (own.K > 16 && variant.options.order > 2)
        continue;  // the definition has C(K + order, order) features
      Case c{op, variant, own, device, seed, &form};
      if (form.refuses == nullptr || takes_case(c)) list.push_back(c);
    }
  }
  return list;
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  if (b.numel() == 0) return 0;
  const auto wide = [](const at::Tensor& x) {
    return x.is_complex() ? x.to(at::kComplexDouble) : x.to(at::kDouble);
  };
  const double difference = (wide(a) - wide(b)).abs().max().item<double>();
  const double largest = wide(b).abs().max().item<double>();
  if (!(difference < std::numeric_limits<double>::infinity()))
    return std::numeric_limits<double>::infinity();
  return difference / std::max(largest, 1e-30);
}

Inputs sample_inputs(const Case& c, at::ScalarType type) {
  at::manual_seed(c.seed);
  const Inputs in = c.op.sample(c.dims, c.variant, at::TensorOptions().dtype(type));
  return contract_parts::map_inputs(c, in, [&](const at::Tensor& x) { return x.to(c.device); });
}

}  // namespace horner
