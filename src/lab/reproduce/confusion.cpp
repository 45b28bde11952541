#include "lab/reproduce/confusion.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <cmath>

namespace horner {
namespace {

constexpr double kSame = 1e-3, kOther = 1e-1;
constexpr int64_t kQueries = 64;

// The weights of the last n tokens over all T.   x (1,T,D) -> (H,n,T)
at::Tensor weights(Mixer& mixer, const at::Tensor& x, int64_t n) {
  const int64_t T = x.size(1);
  if (!mixer.causal()) return mixer.map(x)[0].narrow(1, T - n, n);
  const at::Tensor asked = x[0].narrow(0, T - n, n).unsqueeze(1);  // (n,1,D)
  std::vector<at::Tensor> rows;
  for (const at::Tensor& some : asked.split(std::max<int64_t>(1, (int64_t(1) << 19) / (T * T)))) {
    const at::Tensor longer = at::cat({x.expand({some.size(0), -1, -1}), some}, 1);
    rows.push_back(mixer.map(longer).select(2, T).narrow(2, 0, T));  // (some,H,T)
  }
  return at::cat(rows).transpose(0, 1);
}

// The same while the projection of the queries is doubled; undefined: it has none of its own.
at::Tensor doubled_weights(Mixer& mixer, const at::Tensor& x, int64_t n) {
  const c10::NoGradGuard no_graph;
  std::vector<at::Tensor> projection;
  const auto parameters = mixer.named_parameters();
  for (const char* name : {"q_weight", "q_bias"}) {
    if (const at::Tensor* p = parameters.find(name)) projection.push_back(*p);
  }
  if (projection.empty()) return {};
  for (const at::Tensor& p : projection) p.mul_(2);
  const at::Tensor w = weights(mixer, x, n);
  for (const at::Tensor& p : projection) p.mul_(0.5);
  return w;
}

}  // namespace

Confusion confusion(Mixer& mixer, const at::Tensor& given) {
  Confusion c;
  const at::Tensor x = given.narrow(0, 0, 1);
  if (!mixer.core(x).in.q.defined()) return c;
  const int64_t T = x.size(1), n = std::min(T, kQueries);
  const at::Tensor w = weights(mixer, x, n), w2 = doubled_weights(mixer, x, n);  // (H,n,T)
  const at::Tensor asked = x[0].narrow(0, T - n, n);                             // (n,D)
  const at::Tensor size = w.norm(2, -1).clamp_min(1e-300);                       // (H,n)
  const at::Tensor apart = at::cdist(w, w) / size.unsqueeze(-1);                 // (H,n,n)
  const at::Tensor other = at::cdist(asked, asked) > kOther * asked.norm(2, -1, true);
  const at::Tensor confused = apart.le(kSame).logical_and(other).to(at::kDouble);
  for (int64_t h = 0; h < w.size(0); ++h) {
    const at::Tensor own = confused[h];
    c.heads.push_back(
        {own.sum().item<double>() / double(n * (n - 1)), own.amax(-1).mean().item<double>()}
    );
  }
  c.doubled = w2.defined() ? ((w2 - w).norm(2, -1) / size).mean().item<double>() : NAN;
  const at::Tensor self = at::eye(n, w.options()) * std::numeric_limits<double>::max();
  c.nearest = (apart + self).amin(-1).median().item<double>();
  return c;
}

Json Confusion::json() const {
  Json list = Json::array();
  for (const Head& h : heads) list.push_back({{"pairs", h.pairs}, {"tokens", h.tokens}});
  return {
      {"heads", list},
      {"doubled_query", std::isnan(doubled) ? Json() : Json(doubled)},
      {"nearest", nearest}};
}

}  // namespace horner
