#include "lab/convert/bound.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "lab/explain/heads.h"

namespace horner {
namespace {

at::Tensor tensor_named(const Mixer& mixer, const std::string& name) {
  for (const auto& entry : mixer.named_parameters())
    if (entry.key() == name) return entry.value().detach();
  for (const auto& entry : mixer.named_buffers())
    if (entry.key() == name) return entry.value();
  return {};
}

// The running maximum over time of x (T).
at::Tensor running_max(const at::Tensor& x) { return std::get<0>(at::cummax(x, 0)); }

// |k_u - mu(u)| of each key of a group.   k (T,K), centres (C,K) -> (T)
at::Tensor distances(const at::Tensor& k, const at::Tensor& centres) {
  return std::get<0>(at::cdist(k, centres).min(1));
}

// f of each token, from e.
double factor(double e, double bias) {
  const double scale = std::exp(bias);
  return std::max(scale * (1 + e) - 1, 1 - scale * (1 - e));
}

}  // namespace

double series_error(double B, int64_t order) {
  return std::exp(
      double(order + 1) * std::log(std::max(B, 1e-300)) + B - std::lgamma(double(order + 2))
  );
}

std::optional<Approximation> approximation_of(const MixerSpec& spec, const Mixer& mixer) {
  const Json o = mixer.options();
  Approximation a;
  a.window = o.value("window", int64_t{0});
  a.sinks = o.value("sinks", int64_t{0});
  const std::string far = o.value("far", "");
  if (spec.name == "window" || far == "none") {
    a.drops = true;
    return a;
  }
  const bool plain = o.value("norm", "sum") == "sum" &&
                     o.value("feature", "identity") == "identity" &&
                     o.value("decay", "none") == "none" && !o.value("input_gate", false) &&
                     o.value("output_gate", "none") == "none" && o.value("conv", 0) == 0 &&
                     o.value("coefficients", "taylor") == "taylor";
  const bool alone = (spec.name == "taylor" || spec.name == "centres") && plain;
  if (!alone && far != "taylor" && far != "centres") return {};
  const bool series = spec.name == "taylor" || far == "taylor";
  const Json order = o.value("order", Json());
  a.order = order.is_number() ? order.get<int64_t>() : series ? 2 : 0;
  a.centres = tensor_named(mixer, series ? "centre" : "centres");
  if (series && a.centres.defined()) a.centres = a.centres.unsqueeze(1);  // (G,1,K)
  a.bias = tensor_named(mixer, "far_bias");
  return a;
}

HeadBound bound_of(const Approximation& a, const Core& core, int64_t row, int64_t head) {
  const int64_t r = core.in.q.size(2) / core.in.k.size(2), group = head / r;
  const at::Tensor q = core.in.q[row].select(1, head).to(at::kDouble);
  const at::Tensor k = core.in.k[row].select(1, group).to(at::kDouble);
  const at::Tensor v = core.in.v[row].select(1, group).to(at::kDouble);
  const int64_t T = q.size(0);
  const double scale = core.options.scale.value_or(1 / std::sqrt(double(k.size(1))));
  const at::Tensor w =
      weights_of({at::matmul(scale * q, k.t()), {}, core.options.window, core.options.sinks});
  // Summed over the far tokens: 1 minus the near ones would round a small tail to 0.
  HeadBound y;
  y.tail = at::ones({T}, at::kDouble);
  if (a.window > 0) {
    const int64_t sinks = std::min(a.sinks, T);
    y.tail = w.tril(-a.window).narrow(1, sinks, T - sinks).sum(1);
  }
  const at::Tensor M = running_max(v.norm(2, 1));
  y.most = 2 * M;
  if (a.drops) {
    y.bound = at::minimum(2 * y.tail * M, y.most);
    return y;
  }
  const at::Tensor centres = a.centres.defined() ? a.centres[group].to(at::kDouble)
                                                 : at::zeros({1, k.size(1)}, at::kDouble);
  // The keys that are far from token t are among those of tokens up to t - window.
  at::Tensor radius = running_max(distances(k, centres));
  if (a.window > 0) radius = at::constant_pad_nd(radius, {a.window, 0}).narrow(0, 0, T);
  const at::Tensor B = (q.norm(2, 1) * radius * scale).contiguous();
  y.B = B.max().item<double>();
  const double bias = a.bias.defined() ? a.bias[head].item<double>() : 0;
  y.bound = y.most.clone();
  double* bound = y.bound.data_ptr<double>();
  for (int64_t t = 0; t < T; ++t) {
    const double tail = y.tail[t].item<double>();
    const double share = factor(series_error(B.data_ptr<double>()[t], a.order), bias) * tail;
    if (share < 1) bound[t] *= std::min(1.0, share / (1 - share));
  }
  return y;
}

}  // namespace horner
