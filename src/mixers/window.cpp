#include "mixers/window.h"

#include <ATen/Functions.h>

#include "core/check.h"
#include "nn/heads.h"
#include "nn/linears.h"

namespace horner {

Window::Window(int64_t D, const Options& o)
    : Mixer("window", D), o_(o), G_(o.groups > 0 ? o.groups : o.heads) {
  check_at_least(name(), "heads", double(o.heads), 1);
  check_at_least(name(), "head", double(o.head), 0);
  if (o.head == 0) check_heads(name(), D, o.heads);
  HORNER_CHECK(
      o.groups >= 0 && o.heads % G_ == 0,
      "[window] groups must divide heads = {}, got {}",
      o.heads,
      o.groups
  );
  check_at_least(name(), "window", double(o.window), 1);
  check_at_least(name(), "sinks", double(o.sinks), 0);
  HORNER_CHECK(
      o.causal || o.position.kind != "selective_rope",
      "[window] causal = false takes no selective_rope: it runs forward"
  );
  const int64_t K = o.head > 0 ? o.head : D / o.heads;
  q_ = linear(*this, "q", D, o.heads * K);
  k_ = linear(*this, "k", D, G_ * K);
  v_ = linear(*this, "v", D, G_ * K);
  out_ = linear(*this, "out", o.heads * K, D);
  position_ = Position(*this, D, G_, K, o.position);
}

at::Tensor Window::mix(const at::Tensor& x, Pass& pass) {
  Inputs in;
  const auto [q, k, v] = linears(x, q_, k_, v_);
  in.q = split_heads(q, o_.heads);
  in.k = split_heads(k, G_);
  in.v = split_heads(v, G_);
  position_.rotate(x, in.q, in.k, pass);
  horner::Options options;
  options.window = pass.context().window.value_or(o_.window);
  options.causal = o_.causal;
  options.sinks = o_.sinks;
  HORNER_CHECK(options.window >= 1, "[window] window must be at least 1, got {}", options.window);
  return out_(join_heads(pass.run("attention", in, options).o));
}

}  // namespace horner
