// The exponential gate on the chunked kernel: against fp64 it errs at most twice as much as the plain form whose
// products are rounded to bf16.
#include <torch/csrc/autograd/autograd.h>

#include <optional>

#include "core/device.h"
#include "ops/chunks.h"
#include "ops/contract.h"
#include "ops/kernel_error.h"

namespace horner {
namespace {

struct Setting {
  Dims dims;
  bool state = false;
  double input_gate = 0;  // its mean: far below 0 the floor holds den, far above it never does
};

void PrintTo(const Setting& s, std::ostream* out) {
  *out << fmt::format(
      "{}, input gate {}{}", describe(s.dims), s.input_gate, s.state ? ", with states" : ""
  );
}

struct Gated {
  at::Tensor q, k, v, i, f, S0, m0, w, wS;  // the loss is <o, w> + <S_T, wS>
};

Gated sample(const Setting& s, uint64_t seed) {
  const Dims& d = s.dims;
  torch::manual_seed(seed);
  const auto random = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, at::device(at::kCUDA).dtype(at::kFloat));
  };
  const auto low = [&](at::IntArrayRef sizes) { return random(sizes).to(at::kBFloat16); };
  Gated x;
  x.q = low({d.B, d.T, d.H, d.K});
  x.k = low({d.B, d.T, d.G, d.K});
  x.v = low({d.B, d.T, d.G, d.V});
  x.i = random({d.B, d.T, d.G}) + s.input_gate;
  x.f = at::log_sigmoid(random({d.B, d.T, d.G}) + 3);
  x.S0 = random({d.B, d.G, d.K, d.V + 1});
  x.m0 = random({d.B, d.G});
  x.w = low({d.B, d.T, d.H, d.V});
  x.wS = random({d.B, d.G, d.K, d.V + 1});
  return x;
}

// dq, dk, dv, di, df, o, and with states dS0 and the last S.
Values evaluate(const Setting& s, const Gated& x, at::ScalarType type, const std::string& form) {
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const auto leaf = [](const at::Tensor& y, at::ScalarType as) {
    return y.to(as).detach().requires_grad_(true);
  };
  Inputs in;
  in.q = leaf(x.q, type);
  in.k = leaf(x.k, type);
  in.v = leaf(x.v, type);
  const at::Tensor i = leaf(x.i, wide), f = leaf(x.f, wide), S0 = leaf(x.S0, wide);
  Options o;
  o.form = form;
  o.scale = 1 / std::sqrt(double(s.dims.K));
  o.final_state = s.state;
  const State state = s.state ? State{{S0, x.m0.to(wide)}} : State{};
  o.norm = "bounded";
  in.i = i;
  in.g = f;
  const Result y = run(find_op("linear"), in, state, o);
  Values all{{"dq", "dk", "dv", "di", "df"}, {}};
  std::vector<at::Tensor> leaves = {in.q, in.k, in.v, i, f}, outputs = {y.o},
                          grads = {x.w.to(type)};
  if (s.state) {
    all.names.emplace_back("dS0");
    leaves.push_back(S0);
    outputs.push_back(y.state.parts[0]);
    grads.push_back(x.wS.to(wide));
  }
  all.tensors = torch::autograd::grad(outputs, leaves, grads);
  all.names.emplace_back("o");
  all.tensors.push_back(y.o.detach());
  if (s.state) {
    all.names.emplace_back("S");
    all.tensors.push_back(y.state.parts[0].detach());
  }
  return all;
}

Values plain_values(const Setting& s, const Gated& x) {
  const RoundedProducts low;
  return evaluate(s, x, at::kBFloat16, "chunked");
}

class GatedKernelCuda : public testing::TestWithParam<Setting> {};
TEST_P(GatedKernelCuda, ErrsAtMostTwiceAsMuch) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Setting& s = GetParam();
  const Gated x = sample(s, 3);
  const Values exact = evaluate(s, x, at::kDouble, "chunked"), plain = plain_values(s, x);
  const Values kernel = evaluate(s, x, at::kBFloat16, "chunked kernel");
  for (size_t n = 0; n < exact.names.size(); ++n) {
    Errors base = errors(plain.tensors[n], exact.tensors[n]);
    const Errors got = errors(kernel.tensors[n], exact.tensors[n]);
    if (got.max > 2 * base.max + 1e-5)
      base.max = largest_of_draws([&](uint64_t seed) {
        const Gated other = sample(s, seed);
        const at::Tensor own = evaluate(s, other, at::kDouble, "chunked").tensors[n];
        return errors(plain_values(s, other).tensors[n], own).max;
      });
    expect_at_most_twice(exact.names[n], got, base);
  }
}

std::vector<Setting> settings() {
  std::vector<Setting> list;
  for (const int64_t T : {2, 64, 65, 500})
    list.push_back({{.B = 2, .T = T, .H = 4, .G = 2, .K = 64, .V = 64}, true});
  for (const double gate : {-8.0, 0.0, 8.0})
    list.push_back({{.B = 1, .T = 1000, .H = 4, .G = 4, .K = 128, .V = 128}, false, gate});
  list.push_back({{.B = 1, .T = 300, .H = 2, .G = 2, .K = 128, .V = 256}, true});
  list.push_back({{.B = 1, .T = 4097, .H = 2, .G = 2, .K = 48, .V = 80}, true});
  return list;
}
INSTANTIATE_TEST_SUITE_P(Settings, GatedKernelCuda, testing::ValuesIn(settings()));

// A packed batch is its sequences, each on its own.
TEST(GatedKernelsCuda, Packs) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Gated x = sample({{.B = 1, .T = 200, .H = 2, .G = 2, .K = 64, .V = 64}}, 3);
  Inputs in;
  in.q = x.q, in.k = x.k, in.v = x.v;
  in.i = x.i, in.g = x.f;
  in.cu_seqlens = at::tensor({0, 130, 130, 200}, at::kInt).to(at::kCUDA);
  Options o;
  o.norm = "bounded";
  const Op& op = find_op("linear");
  const Result all = run(op, in, {}, o);
  EXPECT_EQ(all.form, "chunked kernel");
  for (const auto& [t, length] : {std::pair<int64_t, int64_t>{0, 130}, {130, 70}}) {
    const at::Tensor alone = run(op, tokens(op, in, t, length), {}, o).o;
    EXPECT_TRUE(at::equal(alone, all.o.narrow(1, t, length)));
  }
}

}  // namespace
}  // namespace horner
