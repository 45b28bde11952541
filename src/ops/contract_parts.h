// What the properties of the contract share.
#pragma once

#include "ops/contract.h"

namespace horner::contract_parts {

constexpr double kExact = 1e-10;  // fp64 forms against each other

// The case's options with a form of that name.
Options with(const Case&, std::string_view form, int64_t chunk = 16, bool state = true);
Options with(const Case&, int64_t chunk = 16, bool state = true);  // the case's own form

// Inputs of the case in the type of its form; gates of a form that is not exact are fp32.
Inputs form_inputs(const Case&);
Inputs to_wide(const Case&, const Inputs&);  // the same numbers in fp64

// The error of o, norm and the state: the largest relative error in fp64, else the relative root mean square.
double result_error(const Case&, const Result& a, const Result& b);
double tensor_error(const Case&, const at::Tensor& a, const at::Tensor& b);

// truth: the definition in fp64. allowed: the bound on the form's error in the case's precision.
Result truth(const Case&, const Inputs&, const State& = {});
std::string_view plain_form(const Case&);
double allowed(const Case&, const Inputs&, const Result& truth);

// Runs the form that the options name, or `auto` if that form refuses.
Result run_else_auto(const Case&, const Inputs&, const State&, const Options&);

// f(options) for the case's form; with chunks of 1, 7, 16, 64 and T if it takes chunks of any size.
template <class F>
void for_each_chunk(const Case& c, F&& f) {
  if (c.form_name() != forms::kChunked && c.form_name() != forms::kFusedChunked) return f(with(c));
  for (const int64_t chunk : {int64_t(1), int64_t(7), int64_t(16), int64_t(64), c.dims.T})
    f(with(c, chunk));
}

template <class F>
Inputs map_inputs(const Case& c, const Inputs& in, F&& f) {
  Inputs out = in;
  for (const Input& input : c.op.inputs) {
    at::Tensor& x = out.*input.tensor;
    if (x.defined()) x = f(x);
  }
  return out;
}

// The properties, by file.
Measure forms_agree(const Case&);
Measure splits(const Case&);
Measure steps(const Case&);
Measure packs(const Case&);
Measure grouped(const Case&);
Measure linear_in_v(const Case&);
Measure any_strides(const Case&);
Measure expanded_heads(const Case&);
Measure large_scores(const Case&);
Measure single_precision(const Case&);
Measure bfloat_precision(const Case&);
Measure half_precision(const Case&);

Measure causal(const Case&);
Measure independent(const Case&);
Measure state_size(const Case&);
Measure nan_stays(const Case&);
Measure nan_waits(const Case&);
Measure same_bits(const Case&);
Measure long_time(const Case&);
Measure refuses(const Case&);

Measure gradients(const Case&);

}  // namespace horner::contract_parts
