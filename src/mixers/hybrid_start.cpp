// The closed-form start of `hybrid`; the table of what is set stands in start.h.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "core/check.h"
#include "mixers/hybrid.h"
#include "mixers/start.h"
#include "nn/precision.h"

namespace horner {
namespace {

constexpr double kLeastShare =
    1e-4;  // of weight beyond the window: smaller ones are mostly rounding

at::Tensor of_groups(const at::Tensor& x, int64_t G) { return x.unflatten(0, {G, -1}).mean(1); }

at::Tensor sum_of_heads(const at::Tensor& x) {
  return x.sum(-1).flatten(0, 1).sum(0);
}  // (B,T,H,V)

}  // namespace

void Hybrid::calibrate(const at::Tensor& x) {
  const c10::NoGradGuard no_graph;
  const State nothing;
  const Context plain;
  Pass pass(nothing, plain);
  HeadStatistics s = measure(project(x, pass).in, o_.window, o_.sinks);
  s.x = x;
  start(s);
}

void Hybrid::start(const HeadStatistics& s) {
  const c10::NoGradGuard no_graph;
  HORNER_CHECK(
      o_.far == "none" || s.x.defined(), "[hybrid] the start needs what the layer read, x (B,T,D)"
  );
  if (shares_normaliser()) start_shared(s);
  if (far_scale_.defined()) start_added(s);
}

// e^far_bias times the far weights' sum is softmax's, in the mean of the logs, each query by its share beyond the window.
void Hybrid::start_shared(const HeadStatistics& s) {
  if (centres_.defined()) centres_.set(k_means_of_heads(s.in.k, o_.count));
  if (centre_.defined()) centre_.copy_(wide(s.in.k).flatten(0, 1).mean(0));
  far_bias_.zero_();
  const State nothing;
  const Context plain;
  Pass pass(nothing, plain);
  const Parts p = shared(s.x, s.in, pass);
  const at::Tensor share = 1 - (p.near.norm - s.norm).exp();  // (B,T,H)
  const at::Tensor counts = (share > kLeastShare).logical_and(p.far.norm > -1e29);
  const at::Tensor weight = at::where(counts, share, 0.0);
  const at::Tensor missing = s.norm + share.clamp_min(kLeastShare).log() - p.far.norm;
  const at::Tensor sum = at::where(counts, weight * missing, 0.0).flatten(0, 1).sum(0);
  far_bias_.copy_(sum / weight.flatten(0, 1).sum(0).clamp_min(1e-6));
}

void Hybrid::start_added(const HeadStatistics& s) {
  const int64_t T = s.x.size(1);
  const at::Tensor rate = std::log(2.0) / of_groups(s.distance, G_).clamp_min(1);  // (G)
  const int64_t each = decays_per_key() ? K_ : 1;
  decay_.bias.copy_(rate.expm1().log().repeat_interleave(each));  // softplus(bias) = rate
  if (beta_.bias.defined()) {
    const at::Tensor flat = of_groups(s.entropy, G_) / std::log(double(std::max<int64_t>(T, 2)));
    beta_.bias.copy_((1 - flat).clamp(0.05, 0.95).logit());
  }
  // far_scale = <softmax - near, gate far> / |gate far|^2 for each head
  const State nothing;
  const Context plain;
  Pass pass(nothing, plain);
  Projected p = project(s.x, pass);
  p.in = s.in;
  if (o_.rotate) p.q = s.in.q, p.k = s.in.k;
  const Parts parts = added(s.x, p, pass);
  const at::Tensor far = wide(parts.far.o) * gate(s.x, parts.far.o).unsqueeze(-1);
  const at::Tensor left = wide(s.o) - wide(parts.near.o);
  far_scale_.copy_(sum_of_heads(left * far) / sum_of_heads(far.square()).clamp_min(1e-12));
}

}  // namespace horner
