// The kernels of `delta` against fp64: their error is at most twice that of the plain version in the same
// precision, for o, the final state and every gradient.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <optional>

#include "core/check.h"
#include "core/device.h"
#include "ops/chunks.h"
#include "ops/contract.h"
#include "ops/kernel_error.h"

namespace horner {
namespace {

struct Setting {
  Dims dims;
  std::string gate = "none";  // none, head, key
  double decay = 0;           // 0: sampled
  bool state = false;         // an initial state, and a gradient of the final one
  at::ScalarType type = at::kBFloat16;
  std::string form = "chunked kernel";
  double scale = 1;
};

void PrintTo(const Setting& s, std::ostream* out) {
  *out << fmt::format(
      "{}, {}, {}, decay {} {}, {}",
      s.form,
      c10::toString(s.type),
      describe(s.dims),
      s.gate,
      s.decay,
      s.state ? "with states" : "no states"
  );
}

// By the given form in the given precision.
Values evaluate(
    const Setting& s, const Problem& p, at::ScalarType type, std::string form, bool rounded = false
) {
  Options o;
  o.form = form;
  o.final_state = true;
  o.scale = s.scale;
  std::optional<RoundedProducts> low;
  if (rounded) low.emplace();
  return values_of(find_op("delta"), p, s.state, type, [&](const Inputs& in, const State& state) {
    const Result y = run(find_op("delta"), in, state, o);
    EXPECT_TRUE(!form.ends_with("kernel") || y.form == form) << y.form;
    return y;
  });
}

Problem sample(const Setting& s) {
  const at::Device gpu(at::kCUDA, 0);
  Variant variant;
  variant.gate = s.gate;
  Problem p;
  p.in = sample_inputs({find_op("delta"), variant, s.dims, gpu, 3}, at::kFloat);
  const auto rounded = [&](const at::Tensor& x) { return x.to(s.type).to(at::kDouble); };
  for (const Input& input : {kQ, kK, kV}) p.in.*input.tensor = rounded(p.in.*input.tensor);
  for (int64_t t = 5; t < s.dims.T; t += 11) p.in.beta.select(1, t).zero_();  // nothing is written
  if (p.in.g.defined() && s.decay != 0) p.in.g = at::full_like(p.in.g, s.decay);
  const Dims& d = s.dims;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(gpu);
  p.w = rounded(at::randn({d.B, d.T, d.H, d.V}, options));
  p.S0 = at::randn({d.B, d.G, d.K, d.V}, options);
  p.wS = at::randn({d.B, d.G, d.K, d.V}, options);
  return p;
}

class DeltaKernelCuda : public testing::TestWithParam<Setting> {};
TEST_P(DeltaKernelCuda, ErrsAtMostTwiceAsMuch) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Setting& s = GetParam();
  const Problem p = sample(s);
  const Values exact = evaluate(s, p, at::kDouble, "chunked");
  const Values plain = evaluate(s, p, s.type, "chunked", s.form == "chunked kernel");
  const Values kernel = evaluate(s, p, s.type, s.form);
  for (size_t i = 0; i < exact.names.size(); ++i) {
    if (exact.tensors[i].abs().max().item<double>() == 0) continue;
    const Errors base = errors(plain.tensors[i], exact.tensors[i]);
    const Errors got = errors(kernel.tensors[i], exact.tensors[i]);
    expect_at_most_twice(exact.names[i], got, base);
  }
}

std::vector<Setting> settings() {
  std::vector<Setting> list;
  for (const int64_t T : {1, 63, 64, 65, 127, 1000, 4097}) {
    const int64_t B = T == 1 ? 32 : 2;  // enough numbers for a root mean square
    const Dims square{.B = B, .T = T, .H = 4, .G = 4, .K = 128, .V = 128};
    const Dims grouped{.B = 1, .T = T, .H = 4, .G = 2, .K = 64, .V = 64};
    list.push_back({square, "none"});
    list.push_back({square, "head", 0, true});
    list.push_back({square, "head", -20, true});
    list.push_back({square, "head", -1e-3});
    list.push_back({grouped, "none", 0, true});
    list.push_back({grouped, "head", 0, true});
    list.push_back({square, "key", 0, true});
    list.push_back({square, "key", -20, true});
    list.push_back({square, "key", -1e-3});
    list.push_back({grouped, "key", 0, true});
  }
  const Dims narrow{.B = 1, .T = 300, .H = 6, .G = 2, .K = 48, .V = 80};
  list.push_back({narrow, "head", 0, true});
  list.push_back({narrow, "key", 0, true});
  for (const char* gate : {"head", "key"})
    list.push_back({{.B = 2, .T = 130, .H = 2, .G = 2, .K = 128, .V = 16}, gate, -0.05, true});
  list.push_back({{.B = 2, .T = 130, .H = 2, .G = 2, .K = 72, .V = 128}, "key", 0, true});
  list.push_back({{.B = 1, .T = 65536, .H = 1, .G = 1, .K = 64, .V = 64}, "key", 0, true});
  list.push_back({{.B = 1, .T = 65536, .H = 1, .G = 1, .K = 64, .V = 64}, "head", 0, true});
  list.push_back({{.B = 1, .T = 65536, .H = 1, .G = 1, .K = 64, .V = 64}, "none"});
  Setting scaled{{.B = 1, .T = 130, .H = 2, .G = 1, .K = 64, .V = 128}, "head", 0, true};
  scaled.scale = 0.125;
  list.push_back(scaled);
  scaled.gate = "key";
  list.push_back(scaled);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const char* gate : {"none", "head", "key"}) {
      for (const int64_t T : {1, 65, 997}) {
        Setting s{{.B = 2, .T = T, .H = 4, .G = 2, .K = 33, .V = 70}, gate, 0, true, type};
        s.form = "recurrent kernel";
        s.scale = 0.5;
        list.push_back(s);
        s.state = false;
        s.decay = -20;
        if (T == 997) list.push_back(s);
      }
    }
  }
  Setting large{
      {.B = 1, .T = 200, .H = 1, .G = 1, .K = 256, .V = 130}, "head", 0, true, at::kFloat};
  large.form = "recurrent kernel";
  list.push_back(large);
  large.gate = "key";
  list.push_back(large);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Settings, DeltaKernelCuda, testing::ValuesIn(settings()));

TEST(DeltaKernelsCuda, ResetIsAFreshStart) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const char* gate : {"head", "key"}) {
    const Setting s{{.B = 1, .T = 200, .H = 2, .G = 2, .K = 64, .V = 64}, gate};
    for (const char* form : {"chunked kernel", "recurrent kernel"})
      expect_fresh_start(find_op("delta"), sample(s), 90, form, [&](const auto&... as) {
        return evaluate(s, as...);
      });
  }
}

// Every key decays alike: the decay of a head, in other sums.
TEST(DeltaKernelsCuda, EqualDecaysOfAllKeysAreTheHeads) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Setting s{{.B = 2, .T = 300, .H = 4, .G = 2, .K = 64, .V = 128}, "head", 0, true};
  const Problem p = sample(s);
  Problem keys = p;
  keys.in.g = p.in.g.unsqueeze(-1).expand({2, 300, 2, 64}).contiguous();
  const Values one = evaluate(s, p, s.type, "chunked kernel");
  const Values two = evaluate(s, keys, s.type, "chunked kernel");
  for (size_t i = 0; i < one.names.size(); ++i) {
    const at::Tensor sum = one.names[i] == "dg" ? two.tensors[i].sum(-1) : two.tensors[i];
    EXPECT_LT(errors(sum, one.tensors[i].to(at::kDouble)).rms, 1e-2) << one.names[i];
  }
}

TEST(DeltaKernelsCuda, SameBitsAndAnyStrides) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const char* gate : {"head", "key"}) {
    for (const char* form : {"chunked kernel", "recurrent kernel"}) {
      Setting s{{.B = 2, .T = 500, .H = 4, .G = 2, .K = 128, .V = 64}, gate, 0, true};
      Problem p = sample(s);
      const Values one = evaluate(s, p, s.type, form);
      for (const Input& input : {kQ, kK, kV}) {
        at::Tensor& x = p.in.*input.tensor;
        x = x.transpose(1, 2).contiguous().transpose(1, 2);  // (B,H,T,K) in memory
      }
      const Values two = evaluate(s, p, s.type, form);
      for (size_t i = 0; i < one.tensors.size(); ++i)
        EXPECT_TRUE(at::equal(one.tensors[i], two.tensors[i])) << form << " " << one.names[i];
    }
  }
}

// Contiguous tensors that begin between two units of 16 bytes.
TEST(DeltaKernelsCuda, AnyAddress) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Op& op = find_op("delta");
  for (const char* gate : {"head", "key"}) {
    const Setting s{{.B = 2, .T = 70, .H = 2, .G = 2, .K = 64, .V = 64}, gate};
    Inputs in = sample(s).in;
    for (const Input& input : {kQ, kK, kV}) in.*input.tensor = (in.*input.tensor).to(at::kBFloat16);
    Inputs moved = in;
    for (const Input& input : op.inputs) {
      at::Tensor& x = moved.*input.tensor;
      x = at::constant_pad_nd(x.flatten(), {1, 0}).narrow(0, 1, x.numel()).view_as(x);
    }
    Options o;
    o.form = "chunked kernel";
    EXPECT_TRUE(at::equal(run(op, in, {}, o).o, run(op, moved, {}, o).o)) << gate;
  }
}

// A decay per key may be bf16, which is not copied.
TEST(DeltaKernelsCuda, TakesDecaysInBf16) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Setting s{{.B = 2, .T = 130, .H = 4, .G = 2, .K = 64, .V = 64}, "key"};
  Inputs in = sample(s).in;
  for (const Input& input : {kQ, kK, kV}) in.*input.tensor = (in.*input.tensor).to(at::kBFloat16);
  const at::Tensor g = in.g.to(at::kBFloat16);
  Options o;
  o.form = "chunked kernel";
  in.g = g.to(at::kFloat).requires_grad_(true);
  const Result wide = run(find_op("delta"), in, {}, o);
  const at::Tensor dwide = torch::autograd::grad({wide.o.sum()}, {in.g})[0];
  in.g = g.clone().requires_grad_(true);
  const Result narrow = run(find_op("delta"), in, {}, o);
  const at::Tensor dnarrow = torch::autograd::grad({narrow.o.sum()}, {in.g})[0];
  EXPECT_TRUE(at::equal(wide.o, narrow.o));
  EXPECT_EQ(dnarrow.scalar_type(), at::kBFloat16);
  EXPECT_LT(errors(dnarrow, dwide.to(at::kDouble)).rms, 5e-3);
}

// A packed batch in one launch is its sequences, each on its own, bit for bit; an empty one leaves its state as it is.
void expect_packs(const std::string& decay) {
  const Op& op = find_op("delta");
  Setting s{{.B = 1, .T = 500, .H = 4, .G = 2, .K = 64, .V = 128}, decay, 0, true};
  const Problem p = sample(s);
  const at::Device gpu(at::kCUDA, 0);
  const std::vector<int64_t> starts = {0, 70, 70, 71, 198, 500};
  const auto options = at::TensorOptions().dtype(at::kFloat).device(gpu);
  const at::Tensor S0 = at::randn({5, 2, 64, 128}, options), dS = at::randn_like(S0);
  Inputs all = p.in;
  std::vector<at::Tensor> leaves;
  for (const Input& input : op.inputs) {
    at::Tensor& x = all.*input.tensor;
    const bool gate = input.name == "g" || input.name == "beta";
    x = x.to(gate ? at::kFloat : at::kBFloat16).detach().requires_grad_(true);
    leaves.push_back(x);
  }
  Options o;
  o.final_state = true;
  o.form = "chunked kernel";
  const at::Tensor w = p.w.to(at::kBFloat16), first = S0.clone().requires_grad_(true);
  leaves.push_back(first);
  const auto grads = [&](const Result& y, const at::Tensor& dy, const at::Tensor& dstate) {
    return torch::autograd::grad({y.o, y.state.parts[0]}, leaves, {dy, dstate}, true, false, true);
  };
  all.cu_seqlens = at::tensor(starts, at::kInt).to(gpu);
  const Result packed = run(op, all, {{first}}, o);
  const auto whole = grads(packed, w, dS);
  all.cu_seqlens = at::Tensor();
  EXPECT_TRUE(at::equal(packed.state.parts[0][1], S0[1]));
  EXPECT_TRUE(at::equal(whole.back()[1], dS[1]));
  for (size_t j = 0; j + 1 < starts.size(); ++j) {
    const int64_t t = starts[j], length = starts[j + 1] - t, row = int64_t(j);
    if (length == 0) continue;
    const Result one = run(op, tokens(op, all, t, length), {{first.narrow(0, row, 1)}}, o);
    EXPECT_TRUE(at::equal(one.o, packed.o.narrow(1, t, length)));
    EXPECT_TRUE(at::equal(one.state.parts[0][0], packed.state.parts[0][row]));
    const auto alone = grads(one, w.narrow(1, t, length), dS.narrow(0, row, 1));
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      EXPECT_TRUE(at::equal(alone[i].narrow(1, t, length), whole[i].narrow(1, t, length)))
          << op.inputs[i].name;
    }
  }
}
TEST(DeltaKernelsCuda, Packs) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const char* gate : {"head", "key"}) expect_packs(gate);
}

// Token by token from the prefix's state is the whole sequence.
void expect_steps_continue(const std::string& decay) {
  const Op& op = find_op("delta");
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t K : {40, 128, 200}) {
      Setting s{{.B = 3, .T = 100, .H = 4, .G = 2, .K = K, .V = 132}, decay};
      Inputs in = sample(s).in;
      for (const Input& input : {kQ, kK, kV}) in.*input.tensor = (in.*input.tensor).to(type);
      Options o;
      o.final_state = true;
      o.form = "recurrent kernel";
      const at::NoGradGuard none;
      const Result all = run(op, in, {}, o);
      o.form = "auto";
      State state;
      std::vector<at::Tensor> outputs;
      for (int64_t t = 0; t < 100; ++t) {
        const Result y = run(op, tokens(op, in, t, 1), state, o);
        EXPECT_EQ(y.form, "step kernel");
        outputs.push_back(y.o);
        state = y.state;
        if (t != 50) continue;
        at::Tensor& S = state.parts[0];  // not at 16 bytes
        S = at::constant_pad_nd(S.flatten(), {1, 0}).narrow(0, 1, S.numel()).view_as(S);
      }
      EXPECT_LT(relative_error(at::cat(outputs, 1), all.o), type == at::kFloat ? 1e-5 : 1e-2);
      EXPECT_LT(relative_error(state.parts[0], all.state.parts[0]), 1e-5);
    }
  }
}
TEST(DeltaKernelsCuda, StepsContinueAChunk) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const char* gate : {"head", "key"}) expect_steps_continue(gate);
}

// With a decay per key the forward keeps its solve; without it the backward solves again, to the same bits.
TEST(DeltaKernelsCuda, BackwardNeedsNothingKept) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Op& op = find_op("delta");
  const Form& form = *op.form(forms::kChunkedKernel);
  for (const char* gate : {"head", "key"}) {
    const Setting s{{.B = 2, .T = 130, .H = 4, .G = 2, .K = 64, .V = 64}, gate};
    Inputs in = sample(s).in;
    for (const Input& input : {kQ, kK, kV}) in.*input.tensor = (in.*input.tensor).to(at::kBFloat16);
    Saved kept;
    Result dy;
    dy.o = at::randn_like(form.forward(in, {}, {}, &kept).o);
    EXPECT_EQ(kept.tensors.empty(), std::string(gate) == "head");
    const auto with = form.backward(in, {}, {}, kept, dy);
    const auto without = form.backward(in, {}, {}, {}, dy);
    for (size_t i = 0; i < with.size(); ++i) EXPECT_TRUE(at::equal(with[i], without[i])) << i;
  }
}

// auto takes the kernel, says so, and a kernel that cannot run is refused with the reason.
TEST(DeltaKernelsCuda, ChosenOrRefused) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  Setting s{{.B = 1, .T = 70, .H = 2, .G = 2, .K = 64, .V = 64}, "head"};
  Inputs in = sample(s).in;
  const Op& op = find_op("delta");
  EXPECT_EQ(run(op, in, {}, {}).form, "recurrent kernel");
  Options o;
  for (const char* form : {"chunked kernel", "step kernel"}) {
    o.form = form;
    EXPECT_THROW(run(op, in, {}, o), UsageError) << form;  // fp64; 70 tokens
  }
  for (at::Tensor* x : {&in.q, &in.k, &in.v}) *x = x->to(at::kBFloat16);
  EXPECT_EQ(run(op, in, {}, {}).form, "chunked kernel");
}

}  // namespace
}  // namespace horner
