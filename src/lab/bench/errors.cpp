#include "lab/bench/errors.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <optional>

#include "lab/bench/call.h"
#include "ops/chunks.h"
#include "ops/errors.h"

namespace horner {
namespace {

struct Values {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
};

// The plain form whose error is the yardstick: of the forms made of tensor operations, the one that auto would take.
std::string plain_form(const BenchCall& call) {
  for (const Form& form : call.op.forms) {
    if (form.place != Place::any || !form.traces || form.one_token()) continue;
    const bool suits = form.suits == nullptr || form.suits(call.in, call.state, call.options);
    if (suits && refusal(form, call.in, call.state, call.options).empty())
      return std::string(form.name);
  }
  throw std::logic_error("no plain form");
}

Values evaluate(
    const BenchJob& job,
    const Inputs& in,
    const at::Tensor& grad,
    at::ScalarType type,
    bool plain,
    bool state
) {
  BenchCall call(job, in, type);
  call.options.final_state = state;
  if (plain) call.options.form = plain_form(call);
  const Result y = plain ? call.at_once() : call.until_fold();
  Values all{call.names, {}};
  if (!call.leaves.empty())
    all.tensors =
        torch::autograd::grad({y.o}, call.leaves, {grad.to(y.o.scalar_type())}, {}, false, true);
  all.names.emplace_back("o");
  all.tensors.push_back(y.o.detach());
  for (const at::Tensor& part : y.state.parts) {
    if (!part.is_floating_point() && !part.is_complex()) continue;  // counts of tokens
    all.names.emplace_back("state");
    all.tensors.push_back(part.detach());
  }
  return all;
}

// One batch row and two heads of the shape, at most 4,096 tokens.
struct Sampled {
  Inputs in;
  at::Tensor grad;
};
Sampled sample(const BenchJob& job, at::Device device, int64_t seed) {
  Dims some = job.shape.dims;
  some.B = 1;
  some.H = some.G = std::min<int64_t>(2, some.H);
  some.T = std::min<int64_t>(some.T, 4096);
  const at::ScalarType type = low_type(device);
  const auto like = at::device(device).dtype(at::kFloat);
  return {
      job_inputs(job, some, device, seed, type),
      at::randn({1, some.T, some.H, some.V}, like).to(type)};
}
Values exact_values(const BenchJob& job, const Sampled& x, bool state) {
  return evaluate(job, x.in, x.grad, at::kDouble, true, state);
}
Values plain_values(const BenchJob& job, const Sampled& x, bool state) {
  const at::ScalarType type = low_type(x.grad.device());
  std::optional<RoundedProducts> low;
  if (type == at::kBFloat16) low.emplace();
  return evaluate(job, x.in, x.grad, type, true, state);
}

Values own_values(const BenchJob& job, const Sampled& x, bool state) {
  return evaluate(job, x.in, x.grad, low_type(x.grad.device()), false, state);
}

// The largest error of a draw is that of one element and varies from draw to draw (ops/kernel_error.h says how much). If it
// exceeds twice that of the plain form, the mean over eight draws counts, for both.
struct Largest {
  double own = 0, plain = 0;
};
Largest mean_of_draws(
    const BenchJob& job, at::Device device, int64_t seed, bool state, size_t value
) {
  constexpr int kDraws = 8;
  Largest mean;
  for (int64_t draw = seed; draw < seed + kDraws; ++draw) {
    const Sampled x = sample(job, device, draw);
    const at::Tensor exact = exact_values(job, x, state).tensors[value];
    mean.own += errors(own_values(job, x, state).tensors[value], exact).max / kDraws;
    mean.plain += errors(plain_values(job, x, state).tensors[value], exact).max / kDraws;
  }
  return mean;
}

}  // namespace

void check_errors(const BenchJob& whole, at::Device device, int64_t seed, BenchRow& row) {
  const Sampled x = sample(whole, device, seed);
  const BenchCall call(whole, x.in, low_type(device));
  const auto form = [&](const Options& o) {
    return chosen_form(whole.op, call.in, call.state, o).name;
  };
  // With fewer tokens auto may take another kernel, so we name the kernel of the full shape.
  BenchJob job = whole;
  const bool other = !job.lazy() && form(call.options) != row.form;
  if (other) job.variant.options.form = row.form;
  // Checks the final state too, if asking for it does not change the form.
  Options asked = call.options;
  asked.final_state = true;
  const bool state =
      !other && plain_form(call) == forms::kChunked && form(asked) == form(call.options);
  const Values exact = exact_values(job, x, state), plain = plain_values(job, x, state);
  const Values got = own_values(job, x, state);
  double worst = -1;
  for (size_t i = 0; i < exact.tensors.size(); ++i) {
    if (!exact.tensors[i].defined() || exact.tensors[i].abs().max().item<double>() == 0) continue;
    Errors a = errors(got.tensors[i], exact.tensors[i]);
    Errors b = errors(plain.tensors[i], exact.tensors[i]);
    if (a.max > 2 * b.max + 1e-5) {
      const Largest mean = mean_of_draws(job, device, seed, state, i);
      a.max = mean.own, b.max = mean.plain;
    }
    for (const auto& [error, base] : {std::pair{a.rms, b.rms}, {a.max, b.max}}) {
      const double allowed = 2 * base + 1e-5;
      if (error / allowed <= worst) continue;
      worst = error / allowed;
      row.error = error;
      row.allowed = allowed;
      row.worst = exact.names[i];
    }
  }
  if (row.error <= row.allowed) return;
  row.failure = fmt::format(
      "the error of {} is {:.2e}, at most {:.2e} is allowed", row.worst, row.error, row.allowed
  );
}

}  // namespace horner
