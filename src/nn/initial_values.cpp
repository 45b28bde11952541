#include "nn/initial_values.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

namespace horner {

at::Tensor normal(at::IntArrayRef sizes, double deviation) { return at::randn(sizes) * deviation; }

at::Tensor uniform(at::IntArrayRef sizes, double low, double high) {
  return at::rand(sizes) * (high - low) + low;
}

at::Tensor xavier(int64_t out, int64_t in, double gain) {
  const double bound = gain * std::sqrt(6.0 / double(in + out));
  return uniform({out, in}, -bound, bound);
}

at::Tensor inverse_softplus_of_steps(int64_t n, double low, double high) {
  const at::Tensor step = uniform({n}, std::log(low), std::log(high)).exp();
  return step + (-(-step).expm1()).log();  // log(e^step - 1)
}

}  // namespace horner
