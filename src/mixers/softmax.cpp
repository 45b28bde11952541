#include "mixers/softmax.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "nn/norm.h"
#include "nn/precision.h"

namespace horner {

Softmax::Softmax(int64_t D, const Options& options) : Series("softmax", D, options) {
  HORNER_CHECK(
      options.causal || options.decay == "none", "[softmax] causal = false takes no decay"
  );
  HORNER_CHECK(
      !options.clamp || options.decay == "none", "[softmax] clamp and decay exclude each other"
  );
}

std::vector<std::string> Softmax::voids() const {
  std::vector<std::string> list = Series::voids();
  if (o_.centre != "none" && (o_.norm == "sum" || scale_free(o_.norm)))
    list.push_back(fmt::format(
        "centre = {}: softmax does not change when one vector is taken from every key", o_.centre
    ));
  return list;
}

Result forgetting_attention(const Inputs& given, Options options, Pass& pass) {
  const at::Tensor G = pass.running_sum(given.g);  // (B,T,G)
  options.scale = 1 / std::sqrt(double(given.q.size(3)));
  Inputs in;
  in.q =
      at::constant_pad_nd(wide(given.q), {0, 1}, 1 / *options.scale);  // scale q'.k' = x_ts - G_s
  in.k = at::cat({wide(given.k), -G.unsqueeze(-1)}, -1);
  in.v = wide(given.v);
  Result result = pass.run("attention", in, options);
  result.o = result.o.to(given.v.scalar_type());
  const int64_t r = given.q.size(2) / G.size(2);
  if (result.norm.defined()) result.norm = result.norm + G.repeat_interleave(r, 2);
  return result;
}

Series::Weighted Softmax::weigh(const Inputs& in, bool sum, Pass& pass) {
  horner::Options options;
  options.causal = o_.causal;
  options.clamp = o_.clamp;
  options.log_norm = sum && o_.norm != "sum";
  const Result result =
      in.g.defined() ? forgetting_attention(in, options, pass) : pass.run("attention", in, options);
  return {result.o, result.norm};
}

std::string Softmax::equation(std::string_view) const {
  return equation_of(o_.clamp ? fmt::format("e^{{min(x_ts, {:g})}}", *o_.clamp) : "e^{x_ts}", "");
}

}  // namespace horner
