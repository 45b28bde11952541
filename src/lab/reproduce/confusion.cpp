#include "lab/reproduce/confusion.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace horner {
namespace {

constexpr double kSame = 1e-3, kOther = 1e-1;
constexpr int64_t kQueries = 64;

// The weights of queries (n,H,K) over all T tokens, each asked at the last.   (n,H,T)
at::Tensor weights(const Core& core, const at::Tensor& queries) {
  const int64_t T = core.in.v.size(1), G = core.in.v.size(2), H = core.in.q.size(2);
  const int64_t most = std::max<int64_t>(1, (int64_t(1) << 22) / (T * T * H));
  std::vector<at::Tensor> rows;
  for (const at::Tensor& some : queries.split(most)) {
    const int64_t n = some.size(0);
    Inputs in;
    in.q = core.in.q.repeat({n, 1, 1, 1});
    in.q.select(1, T - 1).copy_(some);
    in.v = at::eye(T, core.in.v.options()).view({1, T, 1, T}).repeat({n, 1, G, 1});
    for (const auto& [to, from] :
         {std::pair{&in.k, &core.in.k}, {&in.g, &core.in.g}, {&in.beta, &core.in.beta}}) {
      if (from->defined()) *to = at::cat(std::vector<at::Tensor>(size_t(n), *from));
    }
    Options options = core.options;
    options.form = "auto";
    options.final_state = false;
    options.log_norm = false;
    rows.push_back(run(*core.op, in, {}, options).o.select(1, T - 1));
  }
  return at::cat(rows);
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
  const at::Tensor asked = core.in.q[0].narrow(0, T - n, n);  // (n,H,K)
  at::Tensor w = weights(core, asked), w2 = weights(core, 2 * asked);
  if (core.eta.defined()) {
    const at::Tensor eta = core.eta[0].narrow(0, T - n, n).unsqueeze(-1);  // (n,H,1)
    w = w / eta;
    w2 = w2 / eta;
  }
  w = w.transpose(0, 1);  // (H,n,T)
  w2 = w2.transpose(0, 1);
  const at::Tensor q = asked.transpose(0, 1);                     // (H,n,K)
  const at::Tensor size = w.norm(2, -1).clamp_min(1e-300);        // (H,n)
  const at::Tensor apart = at::cdist(w, w) / size.unsqueeze(-1);  // (H,n,n)
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
