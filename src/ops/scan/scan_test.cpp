// What is special to `scan`: closed forms.
#include "ops/scan/scan.h"

#include <gtest/gtest.h>

#include <complex>
#include <numbers>

#include "ops/contract.h"

namespace horner {
namespace {

at::Tensor scan(const at::Tensor& g, const at::Tensor& v, const char* form) {
  Options o;
  o.form = form;
  o.chunk = 5;
  Inputs in;
  in.v = v;
  in.g = g;
  return run(find_op("scan"), in, {}, o).o;
}

// h_t = b (1 - a^t) / (1 - a) for constant a and b, real and complex.
TEST(Scan, GeometricSeries) {
  const std::vector<int64_t> shape = {1, 23, 1, 1};
  for (const c10::complex<double> log_a :
       {c10::complex<double>(-0.3, 0), c10::complex<double>(-0.1, 0.7)}) {
    const at::Tensor g = at::full(shape, log_a, at::kComplexDouble);
    const at::Tensor v = at::full(shape, 2.0, at::kComplexDouble);
    const at::Tensor t = at::arange(1, 24, at::kDouble).view(shape);
    const at::Tensor a = g.exp();
    const at::Tensor expected = 2.0 * (1 - (t * g).exp()) / (1 - a);
    for (const char* form : {"recurrent", "parallel", "chunked"}) {
      EXPECT_LT(relative_error(scan(g, v, form), expected), 1e-13) << form;
    }
  }
}

// a = -1 is g = i pi: the running sum of alternating signs, which is what parity needs.
TEST(Scan, NegativeDecayAlternates) {
  const at::Tensor g =
      at::full({1, 8, 1, 1}, c10::complex<double>(0, std::numbers::pi), at::kComplexDouble);
  const at::Tensor h = scan(g, at::ones({1, 8, 1, 1}, at::kDouble), "chunked").view({8});
  const at::Tensor expected = at::tensor({1., 0., 1., 0., 1., 0., 1., 0.}, at::kDouble);
  EXPECT_LT((at::real(h) - expected).abs().max().item<double>(), 1e-14);
}

TEST(Scan, NoDecayIsARunningSum) {
  const at::Tensor v = at::randn({2, 17, 3, 2}, at::kDouble);
  EXPECT_LT(
      relative_error(scan(at::zeros({2, 17, 3}, at::kDouble), v, "chunked"), v.cumsum(1)), 1e-14
  );
}

}  // namespace
}  // namespace horner
