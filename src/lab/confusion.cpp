#include "lab/confusion.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace horner {
namespace {

constexpr double kSame = 1e-3, kOther = 1e-1;
constexpr int64_t kQueries = 64;

// The weights of a query (1,1,H,K) over all T tokens, asked at the last.   (H,T)
at::Tensor weights(const Core& core, const at::Tensor& q) {
  Inputs in = core.in;
  const int64_t T = in.v.size(1), G = in.v.size(2);
  in.v = at::eye(T, in.v.options()).view({1, T, 1, T}).expand({1, T, G, T}).contiguous();
  in.q = in.q.clone();
  in.q.narrow(1, T - 1, 1).copy_(q);
  Options options = core.options;
  options.form = "auto";
  options.final_state = false;
  options.log_norm = false;
  return run(*core.op, in, {}, options).o.select(1, T - 1).squeeze(0);
}

}  // namespace

Confusion confusion(const Core& given) {
  Confusion c;
  if (!given.in.q.defined()) return c;
  Core core = given;
  for (at::Tensor* x : {&core.in.q, &core.in.k, &core.in.v, &core.in.g, &core.in.beta}) {
    if (x->defined()) *x = x->narrow(0, 0, 1);
  }
  const int64_t T = core.in.q.size(1), n = std::min(T, kQueries);
  std::vector<at::Tensor> rows, doubled;
  for (int64_t i = T - n; i < T; ++i) {
    const at::Tensor q = core.in.q.narrow(1, i, 1);
    const at::Tensor eta = core.eta.defined() ? core.eta[0][i].unsqueeze(-1) : at::Tensor();
    rows.push_back(weights(core, q));
    doubled.push_back(weights(core, 2 * q));
    if (!eta.defined()) continue;
    rows.back() = rows.back() / eta;
    doubled.back() = doubled.back() / eta;
  }
  const at::Tensor w = at::stack(rows, 1), w2 = at::stack(doubled, 1);    // (H,n,T)
  const at::Tensor q = core.in.q[0].narrow(0, T - n, n).transpose(0, 1);  // (H,n,K)
  const at::Tensor size = w.norm(2, -1).clamp_min(1e-300);                // (H,n)
  const at::Tensor apart = at::cdist(w, w) / size.unsqueeze(-1);          // (H,n,n)
  const at::Tensor other = at::cdist(q, q) > kOther * q.norm(2, -1, true);
  const at::Tensor confused = apart.le(kSame).logical_and(other).to(at::kDouble);
  for (int64_t h = 0; h < w.size(0); ++h) {
    const at::Tensor own = confused[h];
    c.heads.push_back(
        {own.sum().item<double>() / double(n * (n - 1)), own.amax(-1).mean().item<double>()}
    );
  }
  c.doubled = ((w2 - w).norm(2, -1) / size).mean().item<double>();
  const at::Tensor self = at::eye(n, w.options()) * std::numeric_limits<double>::max();
  c.nearest = (apart + self).amin(-1).median().item<double>();
  return c;
}

Json Confusion::json() const {
  Json list = Json::array();
  for (const Head& h : heads) list.push_back({{"pairs", h.pairs}, {"tokens", h.tokens}});
  return {{"heads", list}, {"doubled_query", doubled}, {"nearest", nearest}};
}

}  // namespace horner
