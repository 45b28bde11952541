#include "nn/features/centres.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/constant.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/parameter.h"
#include "nn/precision.h"
#include "ops/power/power.h"

namespace horner {
namespace {

constexpr double kMostFeatures = 1 << 24;  // as of `power`: a larger state is refused
constexpr double kNothing = -1e30;  // log of a sum without terms, finite for the gradients' sake

// a (..,C) (x) b (..,F) -> (..,C F)
at::Tensor joined_outer(const at::Tensor& a, const at::Tensor& b) {
  return (a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2);
}

}  // namespace

CentreFeatures::CentreFeatures(
    torch::nn::Module& m, int64_t G, int64_t K, int64_t count, int64_t order, double deviation
)
    : order_(order) {
  check_at_least(m.name(), "count", double(count), 1);
  HORNER_CHECK(
      order >= 0 && order % 2 == 0 && order <= kMostOrder,
      "[{}] order must be even and lie in 0 .. {}: an odd polynomial has a zero; got {}",
      m.name(),
      kMostOrder,
      order
  );
  const double F = double(count) * feature_count(K, order);
  HORNER_CHECK(
      F <= kMostFeatures,
      "[{}] {} centres of order {} at K = {} have {:.3g} features a head, more than {:.3g}",
      m.name(),
      count,
      order,
      K,
      F,
      kMostFeatures
  );
  mu_ = parameter(m, "centres", [&] { return normal({G, count, K}, deviation); });
}

void CentreFeatures::set(const at::Tensor& centres) const {
  const c10::NoGradGuard no_graph;
  mu_.copy_(centres);
}

at::Tensor CentreFeatures::nearest(const at::Tensor& k) const {
  const c10::NoGradGuard no_graph;
  const at::Tensor mu = mu_.to(k.scalar_type());
  const at::Tensor closeness =  // k.mu - |mu|^2/2, largest where |k - mu| is smallest
      at::einsum("btgk,gck->btgc", {k, mu}) - mu.square().sum(-1) / 2;
  const at::Tensor numbers = at::arange(count(), k.options().dtype(at::kLong));
  return (closeness.argmax(-1, true) == numbers).to(k.scalar_type());
}

at::Tensor CentreFeatures::soft(const at::Tensor& k) const {
  const at::Tensor mu = mu_.to(k.scalar_type());
  const at::Tensor closeness = at::einsum("btgk,gck->btgc", {k, mu}) - mu.square().sum(-1) / 2;
  return (closeness / std::sqrt(double(k.size(-1)))).softmax(-1);
}

CentreFeatures::Mapped CentreFeatures::operator()(
    const at::Tensor& given_q,
    const at::Tensor& given_k,
    const at::Tensor& written,
    bool causal,
    Pass& pass
) const {
  const c10::impl::ExcludeDispatchKeyGuard typed(c10::autocast_dispatch_keyset
  );  // exponents in fp32
  const at::Tensor k = wide(given_k), mu = mu_.to(k.scalar_type());
  const int64_t G = k.size(2), r = given_q.size(2) / G;
  const at::Tensor q = wide(given_q).unflatten(2, {G, r}) / std::sqrt(double(k.size(3)));

  at::Tensor own = nearest(k);  // 1_{c(k)}
  if (written.defined()) own = own * written.unsqueeze(-1).unsqueeze(-1);
  const at::Tensor tokens =  // that each centre has got   (B,T|1,G,C)
      causal ? pass.running_sum(own)
             : pass.each(own, [](const at::Tensor& y) { return y.sum(1, true); });
  const at::Tensor empty = (tokens < 0.5).unsqueeze(3);
  const at::Tensor score =  // q.mu_c   (B,T,G,r,C)
      at::einsum("btgrk,gck->btgrc", {q, mu})
          .masked_fill(empty, -std::numeric_limits<double>::infinity());
  const at::Tensor most = score.detach().amax(-1, true).clamp_min(kNothing);
  at::Tensor read = (score - most).exp();  // e^{q.mu_c - m}

  at::Tensor phi = own;
  if (order_ > 0) {
    const at::Tensor rest = k - at::einsum("btgc,gck->btgk", {own, mu});
    const std::vector<double> c = series({.order = order_});
    const at::Tensor W = constant(monomial_weights(k.size(3), c), q.options());
    phi = joined_outer(own, monomials(rest, order_));
    read = joined_outer(read, monomials(q, order_) * W);
  } else if (c10::GradMode::is_enabled()) {
    at::Tensor moved = soft(k);
    if (written.defined()) moved = moved * written.unsqueeze(-1).unsqueeze(-1);
    phi = own + (moved - moved.detach());  // the value of `own`, the gradient of `moved`
  }
  return {read.flatten(2, 3), phi, most.squeeze(-1).flatten(2, 3)};
}

}  // namespace horner
