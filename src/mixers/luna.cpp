#include "mixers/luna.h"

#include "core/check.h"
#include "nn/heads.h"
#include "nn/linears.h"

namespace horner {

Luna::Luna(int64_t D, const Options& o) : Mixer("luna", D), o_(o) {
  check_heads(name(), D, o.heads);
  check_at_least(name(), "eps", o.eps, 0);
  HORNER_CHECK(
      o.map.nonnegative || o.norm == "none",
      "[luna] map.nonnegative = false needs norm = none: the sum of its weights can vanish"
  );
  HORNER_CHECK(
      o.causal || o.position.kind != "selective_rope",
      "[luna] causal = false takes no selective_rope: it runs forward"
  );
  q_ = linear(*this, "q", D, D);
  k_ = linear(*this, "k", D, D);
  v_ = linear(*this, "v", D, D);
  out_ = linear(*this, "out", D, D);
  map_ = LunaMap(*this, D / o.heads, o.map);
  position_ = Position(*this, D, o.heads, D / o.heads, o.position);
}

at::Tensor Luna::mix(const at::Tensor& x, Pass& pass) {
  Inputs in;
  const auto [q, k, v] = linears(x, q_, k_, v_);
  in.q = split_heads(q, o_.heads);
  in.k = split_heads(k, o_.heads);
  in.v = split_heads(v, o_.heads);
  position_.rotate(x, in.q, in.k, pass);
  in.q = map_(in.q);
  in.k = map_(in.k);
  horner::Options options;
  options.norm = o_.norm;
  options.eps = o_.eps;
  options.causal = o_.causal;
  return out_(join_heads(pass.run("linear", in, options).o));
}

std::string Luna::equation(std::string_view listed) const {
  return o_.norm == "sum" ? std::string(listed) : "o_t = sum_s phi(q_t).phi(k_s) v_s, phi learned";
}

}  // namespace horner
