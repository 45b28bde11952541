#include "nn/features/features.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "nn/fused/gates.h"
#include "nn/heads.h"
#include "nn/parameter.h"
#include "nn/precision.h"

namespace horner {
namespace {

at::Tensor unit(const at::Tensor& x) { return x / x.norm(2, -1, true).clamp_min(1e-12); }

at::Tensor hedgehog(const at::Tensor& x, const at::Tensor& A) {
  const at::Tensor y = at::einsum("bthk,hkj->bthj", {x, A.to(x.scalar_type())});
  return at::cat({y.softmax(-1), (-y).softmax(-1)}, -1);
}

at::Tensor favor(const at::Tensor& x, const at::Tensor& w, bool key) {
  const at::Tensor xs = x / std::pow(double(x.size(-1)), 0.25);
  at::Tensor e = at::matmul(xs, w.to(x.scalar_type()).t()) - xs.square().sum(-1, true) / 2;
  if (!key) e = e - e.amax(-1, true);  // a factor of all weights of this query
  return e.exp() / std::sqrt(double(w.size(0))) + 1e-4;
}

at::Tensor fourier(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor y = at::matmul(unit(x), w.to(x.scalar_type()).t());
  return at::cat({y.cos(), y.sin()}, -1) / std::sqrt(double(w.size(0)));
}

}  // namespace

const std::vector<std::string>& feature_names() {
  static const std::vector<std::string> list = {
      "identity", "elu1", "relu", "relu2", "cosine", "exp", "favor", "fourier", "hedgehog"};
  return list;
}

at::Tensor orthogonal_rows(int64_t M, int64_t K) {
  const int64_t blocks = (M + K - 1) / K;
  const auto [Q, R] = at::linalg_qr(at::randn({blocks, K, K}, at::kDouble));
  // LAPACK chooses the signs of R: Q is uniform only once they are given to its columns.
  const at::Tensor signs = R.diagonal(0, 1, 2).sign().unsqueeze(1);
  const at::Tensor lengths = at::randn({blocks, K, K}, at::kDouble).norm(2, 2, true);
  const at::Tensor w = (Q * signs).transpose(1, 2) * lengths;
  return w.reshape({blocks * K, K}).narrow(0, 0, M);
}

Features::Features(
    torch::nn::Module& m, const std::string& kind, int64_t H, int64_t G, int64_t K, int64_t M
)
    : kind_(kind) {
  if (kind == "favor" || kind == "fourier") {
    check_at_least(m.name(), "feature_dim", double(M), 1);
    w_ = buffer(m, "feature_directions", [&] {
      return kind == "favor" ? orthogonal_rows(M, K) : at::randn({M, K}, at::kDouble);
    });
  }
  if (kind == "hedgehog") {
    for_q_ = parameter(m, "feature_q", [&] { return at::eye(K).repeat({H, 1, 1}); });
    for_k_ = parameter(m, "feature_k", [&] { return at::eye(K).repeat({G, 1, 1}); });
  }
}

bool Features::positive() const {
  return kind_ != "identity" && kind_ != "cosine" && kind_ != "fourier";
}

at::Tensor Features::apply(const at::Tensor& x, bool key) const {
  if (kind_ == "identity") return x;
  if (kind_ == "elu1") return elu1(x);
  const at::Tensor y = wide(x);
  if (kind_ == "relu") return y.relu();
  if (kind_ == "relu2") return y.relu().square();
  if (kind_ == "cosine") return unit(y);
  if (kind_ == "exp") return y.softmax(-1);
  if (kind_ == "favor") return favor(y, w_, key);
  if (kind_ == "fourier") return fourier(y, w_);
  return hedgehog(y, key ? for_k_ : for_q_);
}

}  // namespace horner
