#include "lab/bench/cost.h"

#include "core/check.h"
#include "ops/sample.h"

namespace horner {
namespace {

double bytes(const at::Tensor& x) { return x.defined() ? double(x.nbytes()) : 0.0; }

}  // namespace

BenchCosts costs(
    const Op& op,
    const Inputs& in,
    const State& state,
    const Options& o,
    std::string_view form,
    int fold
) {
  const Dims d = dims_of(in);
  double inputs = 0;
  for (const Input& input : op.inputs) inputs += bytes(in.*input.tensor);
  const double out = bytes(in.v) * double(d.H) / double(d.G);
  // The backward's two sweeps: one reads k, v, do (and q with a decay), the other all four. A sum normaliser
  // reads o and do once more.
  const double again = !op.grouped() ? bytes(in.g) + 2 * out
                                     : 2 * (inputs + out) - (in.g.defined() ? 0 : bytes(in.q)) +
                                           (o.norm == "none" ? 0 : 2 * out);
  const double rows = double(d.B * d.T * d.H);
  const double waiting = (fold - 1) / 2.0 * (inputs - bytes(in.q));
  const double written = o.final_state ? 1.0 / fold : 0.0;  // else the state is only read
  if (!state.empty())
    return {{inputs + waiting + out + (1.0 + written) * double(state.bytes()), 0}, {}};
  HORNER_CHECK(op.flops != nullptr, "[{}] has no flops, so its cost is not known", op.name);
  const auto [forward, backward] = op.flops(d, o, form);
  return {
      {inputs + out, rows * forward}, {inputs + out + again + inputs, rows * (forward + backward)}};
}

}  // namespace horner
