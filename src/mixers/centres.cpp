#include "mixers/centres.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "mixers/start.h"

namespace horner {

Centres::Centres(int64_t D, const Options& o) : Series("centres", D, o), options_(o) {
  HORNER_CHECK(!o.clamp, "[centres] takes no clamp: a clamped score is no power series");
  HORNER_CHECK(o.centre == "none", "[centres] takes no centre: it has {} of its own", o.count);
  const double of_keys = 0.02 * std::sqrt(double(D));  // of k = x W at the start, x standard normal
  features_ = CentreFeatures(*this, G_, K_, o.count, o.order, of_keys);
}

void Centres::calibrate(const at::Tensor& x) {
  features_.set(k_means_of_heads(keys(x), options_.count));
}

void Centres::start(const HeadStatistics& s) {
  features_.set(k_means_of_heads(s.in.k, options_.count));
}

Series::Weighted Centres::weigh(const Inputs& given, bool sum, Pass& pass) {
  const auto [q, k, log_factor] = features_(given.q, given.k, {}, o_.causal, pass);
  Inputs in = given;
  in.q = q;
  in.k = k;
  horner::Options options;
  options.causal = o_.causal;
  options.norm = "sum";
  options.log_norm = sum && o_.norm != "sum";
  const Result result = pass.run("linear", in, options);
  return {result.o, result.norm.defined() ? result.norm + log_factor : result.norm};
}

}  // namespace horner
