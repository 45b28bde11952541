#include "nn/features/luna.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>

#include <cmath>

#include "nn/features/scalar_networks.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/parameter.h"
#include "nn/precision.h"

namespace horner {

LunaMap::LunaMap(torch::nn::Module& m, int64_t K, const LunaMapOptions& o) : o_(o) {
  check_at_least(m.name(), "map.projections", double(o.projections), 1);
  check_at_least(m.name(), "map.channels", double(o.channels), 1);
  check_at_least(m.name(), "map.hidden", double(o.hidden), 1);
  const int64_t M = o.projections, R = o.channels, E = o.hidden;
  const double bound = 1 / std::sqrt(double(E));
  w_ = parameter(m, "map_w", [&] { return normal({M, K}, 1 / std::sqrt(double(K))); });
  b_ = parameter(m, "map_b", [&] { return at::zeros({M}); });
  fc1_ = parameter(m, "map_fc1", [&] { return uniform({o.shared ? 1 : R, E}, -1, 1); });
  bias1_ = parameter(m, "map_bias1", [&] { return uniform({o.shared ? 1 : R, E}, -1, 1); });
  fc2_ = parameter(m, "map_fc2", [&] { return uniform({R, E}, -bound, bound); });
  bias2_ = parameter(m, "map_bias2", [&] { return uniform({R}, -bound, bound); });
}

at::Tensor LunaMap::networks(const at::Tensor& u) const {
  const Networks all{fc1_, bias1_, fc2_, bias2_};
  if (can_apply(u, all)) return apply_networks(u, all);
  const at::Tensor hidden =
      (u.unsqueeze(-1).unsqueeze(-1) * fc1_ + bias1_).relu();  // (...,M,R|1,E)
  const at::Tensor y = o_.shared ? at::matmul(hidden.squeeze(-2), fc2_.to(hidden.scalar_type()).t())
                                 : (hidden * fc2_).sum(-1);
  return y + bias2_;
}

// x as the product takes it: autocast would round a wider copy back to the same numbers.
at::Tensor for_product(const at::Tensor& x) {
  const at::DeviceType device = x.device().type();
  const bool same = x.scalar_type() == at::kBFloat16 && at::autocast::is_autocast_enabled(device) &&
                    at::autocast::get_autocast_dtype(device) == at::kBFloat16;
  return same ? x : wide(x);
}

at::Tensor LunaMap::operator()(const at::Tensor& given) const {
  const at::Tensor x = for_product(given);
  const bool gauss = o_.envelope == "gauss";
  const double scale = 1 / std::sqrt(double(o_.projections));
  at::Tensor u = at::matmul(x, w_.to(x.scalar_type()).t());  // (...,M)
  if (gauss) u = wide(u);
  const Networks whole{fc1_, bias1_, fc2_, bias2_, b_, o_.nonnegative, scale};
  at::Tensor y;
  if (can_apply(u, whole)) {
    y = apply_networks(u, whole).flatten(-2);  // (...,M) -> (...,M R)
  } else {
    y = networks(wide(u) + b_);  // (...,M,R)
    if (o_.nonnegative) y = y.relu();
    y = y.flatten(-2) / std::sqrt(double(o_.projections));
  }
  if (gauss)
    y = y * (-wide(given).square().sum(-1, true) / (2 * std::sqrt(double(x.size(-1))))).exp();
  return y;
}

}  // namespace horner
