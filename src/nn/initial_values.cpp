#include "nn/initial_values.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "nn/parameter.h"

namespace horner {

namespace {

thread_local bool shapes_only = false, unfilled = false;

at::Device place() { return shapes_only ? at::kMeta : at::kCPU; }

}  // namespace

ShapesOnly::ShapesOnly() : before_(shapes_only) { shapes_only = true; }
ShapesOnly::~ShapesOnly() { shapes_only = before_; }

Unfilled::Unfilled() : before_(unfilled) { unfilled = true; }
Unfilled::~Unfilled() { unfilled = before_; }

at::Tensor constant(at::IntArrayRef sizes, double value) {
  return unfilled ? at::full({}, value).expand(sizes) : at::full(sizes, value);
}

at::Tensor normal(at::IntArrayRef sizes, double deviation) {
  if (lent()) return {};
  if (unfilled) return constant(sizes, 0);
  return at::randn(sizes, place()) * deviation;
}

at::Tensor uniform(at::IntArrayRef sizes, double low, double high) {
  if (lent()) return {};
  if (unfilled) return constant(sizes, low);
  return at::rand(sizes, place()) * (high - low) + low;
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
