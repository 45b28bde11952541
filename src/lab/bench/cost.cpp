#include "lab/bench/cost.h"

#include <algorithm>

#include "ops/power/power.h"
#include "ops/sample.h"

namespace horner {
namespace {

double bytes(const at::Tensor& x) { return x.defined() ? double(x.nbytes()) : 0.0; }

// FLOP of one token of one head, forward and backward.
std::pair<double, double> flops(const Op& op, const Dims& d, const Options& o, bool chunked) {
  const double K = double(d.K), V = double(d.V), T = double(d.T);
  if (op.name == "scan") return {0, 0};
  if (op.name == "delta") {
    const double C = 64, forward = 4 * C * (K + V) + 6 * K * V + C * C;
    return {forward, 2.7 * forward};
  }
  if (op.name == "linear") {
    const double C = 64;
    return {2 * C * (K + V) + 4 * K * V, 6 * C * (K + V) + 10 * K * V};
  }
  if (op.name == "power" && chunked) {
    const double C = d.K <= 32 ? 128 : 16 * K, F = feature_count(d.K, o.order);
    return {C * (K + V) + 4 * F * V, 2.5 * C * (K + V) + 10 * F * V};
  }
  const double seen = o.window > 0 ? std::min(T, 2.0 * double(o.window + o.sinks)) : T;
  return {seen * (K + V), 2.5 * seen * (K + V)};
}

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
  const double inputs = bytes(in.q) + bytes(in.k) + bytes(in.v) + bytes(in.g) + bytes(in.beta);
  const double out = bytes(in.v) * double(d.H) / double(d.G);
  // The backward's two sweeps: one reads k, v, do (and q with a decay), the other all four. A sum normaliser
  // reads o and do once more.
  const double again = op.name == "scan" ? bytes(in.g) + 2 * out
                                         : 2 * (inputs + out) - (in.g.defined() ? 0 : bytes(in.q)) +
                                               (o.norm == "sum" ? 2 * out : 0);
  const double rows = double(d.B * d.T * d.H);
  const double waiting = (fold - 1) / 2.0 * (inputs - bytes(in.q));
  const double written = o.final_state ? 1.0 / fold : 0.0;  // else the state is only read
  if (!state.empty())
    return {{inputs + waiting + out + (1.0 + written) * double(state.bytes()), 0}, {}};
  const auto [forward, backward] =
      flops(op, d, o, form.starts_with("chunked") || form == "wide kernel");
  return {
      {inputs + out, rows * forward}, {inputs + out + again + inputs, rows * (forward + backward)}};
}

}  // namespace horner
