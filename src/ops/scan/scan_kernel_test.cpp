// The kernel of `scan` against fp64: at most twice the error of the plain version in the same precision.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/device.h"
#include "ops/contract.h"

namespace horner {
namespace {

struct Setting {
  int64_t T;
  at::ScalarType type, gate;
  double decay;  // 0: sampled
  bool state;
};

void PrintTo(const Setting& s, std::ostream* out) {
  *out << fmt::format(
      "T{}, {}, g {}, decay {}, {}",
      s.T,
      c10::toString(s.type),
      c10::toString(s.gate),
      s.decay,
      s.state ? "with states" : "no states"
  );
}

std::vector<at::Tensor> evaluate(
    const Setting& s,
    const Inputs& at_point,
    const State& first,
    const at::Tensor& w,
    bool exact,
    const char* form
) {
  const at::ScalarType wide = exact ? at::kDouble : at::kFloat;
  Inputs in;
  in.v = at_point.v.to(exact ? at::kDouble : s.type).detach().requires_grad_(true);
  in.g = at_point.g.to(exact ? at::kDouble : s.gate).detach().requires_grad_(true);
  std::vector<at::Tensor> leaves = {in.v, in.g};
  State state;
  if (s.state) {
    state.parts = {first.parts[0].to(wide).detach().requires_grad_(true)};
    leaves.push_back(state.parts[0]);
  }
  Options o;
  o.form = form;
  o.final_state = true;
  const Result y = run(find_op("scan"), in, state, o);
  EXPECT_TRUE(o.form != "auto" || y.form == "chunked kernel") << y.form;
  std::vector<at::Tensor> outputs = {y.o}, grads = {w.to(y.o.scalar_type())};
  if (s.state) {
    outputs.push_back(y.state.parts[0]);
    grads.push_back(first.parts[1].to(wide));
  }
  std::vector<at::Tensor> all = torch::autograd::grad(outputs, leaves, grads);
  all.push_back(y.o.detach());
  all.push_back(y.state.parts[0].detach());
  return all;
}

class ScanKernelCuda : public testing::TestWithParam<Setting> {};
TEST_P(ScanKernelCuda, ErrsAtMostTwiceAsMuch) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Setting& s = GetParam();
  const at::Device gpu(at::kCUDA, 0);
  const Dims dims{.B = 2, .T = s.T, .H = 3, .G = 3, .K = 1, .V = 40};
  Inputs in = sample_inputs({find_op("scan"), {}, dims, gpu, 5}, at::kFloat);
  in.v = in.v.to(s.type);
  in.g = in.g.to(s.gate);
  if (s.decay != 0) in.g = at::full_like(in.g, s.decay);
  const auto like = at::TensorOptions().dtype(at::kFloat).device(gpu);
  const at::Tensor w = at::randn(in.v.sizes(), like).to(s.type);
  const State first{{at::randn({2, 3, 40}, like), at::randn({2, 3, 40}, like)}};
  const auto exact = evaluate(s, in, first, w, true, "chunked");
  const auto plain = evaluate(s, in, first, w, false, "chunked");
  const auto kernel = evaluate(s, in, first, w, false, "auto");
  // The kernel reads h back in the type it was returned in: dg is right to that rounding.
  const double rounding = s.type == at::kBFloat16 ? 0x1p-8 : s.type == at::kHalf ? 0x1p-11 : 0;
  const char* names[] = {"dv", "dg", s.state ? "dh0" : "h", s.state ? "h" : "hT", "hT"};
  for (size_t i = 0; i < exact.size(); ++i) {
    if (exact[i].abs().max().item<double>() == 0) continue;
    const auto rms = [&](const at::Tensor& x) {
      return ((x.to(at::kDouble) - exact[i]).norm() / exact[i].norm()).item<double>();
    };
    const double allowed = i == 1 ? rounding : 0;
    EXPECT_LE(rms(kernel[i]), 2 * rms(plain[i]) + 1e-5 + allowed / 2) << names[i];
    EXPECT_LE(
        relative_error(kernel[i], exact[i]), 2 * relative_error(plain[i], exact[i]) + 1e-5 + allowed
    ) << names[i];
  }
}

std::vector<Setting> settings() {
  std::vector<Setting> list;
  for (const int64_t T : {1, 63, 64, 65, 127, 1000, 4097}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      list.push_back({T, type, type, 0, true});
      list.push_back({T, type, at::kFloat, 0, false});
      list.push_back({T, type, type, -20, true});
    }
    list.push_back({T, at::kBFloat16, at::kFloat, -1e-4, true});
  }
  return list;
}
INSTANTIATE_TEST_SUITE_P(Settings, ScanKernelCuda, testing::ValuesIn(settings()));

}  // namespace
}  // namespace horner
