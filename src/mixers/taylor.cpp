#include "mixers/taylor.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "core/check.h"
#include "nn/heads.h"
#include "nn/parameter.h"
#include "nn/precision.h"
#include "ops/power/power.h"

namespace horner {

Taylor::Taylor(int64_t D, const Options& o) : Series("taylor", D, o), options_(o) {
  check_at_least("taylor", "order", double(o.order), 0);
  HORNER_CHECK(o.decay != "shifted", "[taylor] decay = shifted may grow: it belongs to softmax");
  HORNER_CHECK(!o.clamp, "[taylor] takes no clamp: a clamped score is no power series");
  HORNER_CHECK(
      o.order >= 0 && o.order <= kMostOrder,
      "[taylor] order must lie in 0 .. {}, got {}",
      kMostOrder,
      o.order
  );
  const bool sum = o.norm == "sum" || o.norm == "detach" || o.norm == "clampden";
  HORNER_CHECK(
      !sum || o.order % 2 == 0,
      "[taylor] norm = {} needs an even order: an odd polynomial has a zero; got {}",
      o.norm,
      o.order
  );
  HORNER_CHECK(
      o.decay_place == "outside" || o.decay != "none", "[taylor] decay_place = inside needs a decay"
  );
  if (o.coefficients == "learned")
    s_ = parameter(*this, "coefficients", [&] { return at::zeros({o.order + 1}); });
}

Series::Weighted Taylor::weigh(const Inputs& given, bool sum, Pass& pass) {
  Inputs in = given;
  horner::Options options;
  options.causal = o_.causal;
  options.order = options_.order;
  options.decay = options_.decay_place;
  if (!s_.defined()) {
    options.norm = sum ? "sum" : "none";
    options.log_norm = sum && o_.norm != "sum";
    const Result result = pass.run("power", in, options);
    return {result.o, result.norm};
  }
  const at::Tensor numbers = at::arange(options.order + 1, wide(s_).options().requires_grad(false));
  const at::Tensor factorials = numbers.clamp_min(1).cumprod(0);  // made on the device: no copy
  const at::Tensor c = 2 * wide(s_).sigmoid() / factorials;       // 2 sigmoid(s_n)/n!
  if (!sum) return {pass.run_learned(in, options, c).o, {}};
  const int64_t V = in.v.size(3);
  in.v = at::constant_pad_nd(wide(in.v), {0, 1}, 1.0);  // [v_t, 1]
  const at::Tensor both = pass.run_learned(in, options, c).o;
  const at::Tensor den = both.select(3, V).clamp_min(1e-30);
  pass.core.in.v = pass.core.in.v.defined() ? pass.core.in.v.narrow(3, 0, V) : at::Tensor();
  const at::Tensor o = pass.divide(both.narrow(3, 0, V), den);
  return {o.to(given.v.scalar_type()), den.log()};
}

std::string Taylor::equation(std::string_view) const {
  const char* term = options_.coefficients == "learned" ? "c_n x^n" : "x^n/n!";
  return equation_of("p(x_ts)", fmt::format(", p(x) = sum_{{n<={}}} {}", options_.order, term));
}

}  // namespace horner
