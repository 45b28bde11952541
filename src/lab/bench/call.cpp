#include "lab/bench/call.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>

namespace horner {

at::ScalarType low_type(at::Device device) { return device.is_cpu() ? at::kFloat : at::kBFloat16; }

Inputs job_inputs(
    const BenchJob& job, const Dims& d, at::Device device, int64_t seed, at::ScalarType type
) {
  at::manual_seed(uint64_t(seed));
  return job.op.sample(d, job.variant, at::device(device).dtype(type));
}

BenchCall::BenchCall(const BenchJob& job, const Inputs& inputs, at::ScalarType type)
    : op(job.op), in(inputs), options(job.variant.options) {
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const bool step = in.v.size(1) == 1;
  for (const Input& input : op.inputs) {
    at::Tensor& x = in.*input.tensor;
    if (!x.defined()) continue;
    const bool small = input.gate && op.grouped();  // a scan's decay is as large as its v
    x = x.to(small ? wide : type).detach().requires_grad_(!step);
    if (step) continue;
    leaves.push_back(x);
    names.push_back(fmt::format("d{}", input.name));
  }
  if (!step) return;
  options.final_state = true;
  const int64_t past = job.subject.past;
  state = op.zero_state(in, past, options);
  for (at::Tensor& part : state.parts) {
    if (past == 0) {
      part.fill_(1.0 / 3);
    } else if (!part.is_floating_point()) {
      part.fill_(past);  // tokens that were seen
    } else {             // multiples of 1/128 in [-1, 1), which bf16 holds
      const int64_t X = part.size(2) * part.size(3);
      const at::Tensor x = at::arange(X, part.options().dtype(at::kLong)).remainder(251);
      part.copy_((x.to(part.scalar_type()) / 128 - 1).view({part.size(2), part.size(3)}));
    }
  }
  if (past > 0) options.final_state = false;  // each call starts from the same cache
  if (job.lazy()) lazy = Lazy{.folded = state};
}

Result BenchCall::forward() const {
  if (lazy) {
    const bool kernel = has_reader(op, in, *lazy, options);
    const at::Tensor o = lazy_step(op, in, *lazy, options);
    return {o, lazy->folded, {}, kernel ? "reading kernel" : "plain"};
  }
  return run(op, in, state, options);
}

Result BenchCall::until_fold() const {
  Result y = forward();
  for (int64_t t = 1; lazy && t < lazy->fold; ++t) y = forward();
  return y;
}

Result BenchCall::at_once() const {
  if (!lazy) return forward();
  Inputs all = in;
  for (const Input& input : op.inputs) {
    at::Tensor& x = all.*input.tensor;
    if (x.defined()) x = x.repeat_interleave(lazy->fold, 1);
  }
  Result y = run(op, all, state, options);
  y.o = y.o.narrow(1, lazy->fold - 1, 1);
  return y;
}

std::vector<at::Tensor> BenchCall::both() const {
  return torch::autograd::grad({forward().o}, leaves, {grad}, {}, false, true);
}

}  // namespace horner
