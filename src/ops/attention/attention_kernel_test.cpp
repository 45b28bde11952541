// The kernels of `attention` against fp64: their error is at most twice that of the plain version
// in the same precision, for o, the log-normaliser and every gradient.
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>

#include "core/device.h"
#include "ops/attention/cache.h"
#include "ops/chunks.h"
#include "ops/contract.h"
#include "ops/kernel_error.h"

namespace horner {
namespace {

const Op& op() { return find_op("attention"); }

struct Setting {
  Dims dims;
  int64_t window = 0, sinks = 0, past = 0;
  bool causal = true, norm = true;
  at::ScalarType type = at::kBFloat16;
  std::vector<int64_t> starts = {};  // packed
};

void PrintTo(const Setting& s, std::ostream* out) {
  *out << fmt::format(
      "{} {}, window {}, sinks {}, past {}, {}{}{}",
      c10::toString(s.type),
      describe(s.dims),
      s.window,
      s.sinks,
      s.past,
      s.causal ? "causal" : "both directions",
      s.norm ? ", norm" : "",
      s.starts.empty() ? "" : ", packed"
  );
}

Options options_of(const Setting& s, const std::string& form) {
  Options o;
  o.form = form;
  o.window = s.window;
  o.sinks = s.sinks;
  o.causal = s.causal;
  o.log_norm = s.norm;
  return o;
}

struct Example {
  Inputs in, past;
  at::Tensor w, wn;  // the loss is <o, w> + <norm, wn>
};

Example example(const Setting& s, uint64_t seed) {
  const at::Device gpu(at::kCUDA, 0);
  const auto rounded = [&](const Dims& d, uint64_t own) {
    Inputs in = sample_inputs({op(), {}, d, gpu, own}, at::kFloat);
    for (const Input& x : op().inputs) in.*x.tensor = (in.*x.tensor).to(s.type);
    return in;
  };
  Example e;
  e.in = rounded(s.dims, seed);
  Dims before = s.dims;
  before.T = s.past;
  if (s.past > 0) e.past = rounded(before, seed + 100);
  const Dims& d = s.dims;
  e.w = at::randn({d.B, d.T, d.H, d.V}, e.in.q.options().dtype(at::kFloat)).to(s.type);
  e.wn = at::randn({d.B, d.T, d.H}, e.in.q.options().dtype(at::kFloat));
  if (!s.starts.empty()) e.in.cu_seqlens = at::tensor(s.starts, at::kInt).to(gpu);
  return e;
}

Values values(
    const Setting& s, const Example& e, at::ScalarType type, const std::string& form, bool gradients
) {
  std::optional<RoundedProducts> low;
  if (type != at::kDouble && !form.ends_with("kernel")) low.emplace();
  const auto wide = [&](Inputs in, bool leaf) {
    for (const Input& x : op().inputs)
      if ((in.*x.tensor).defined())
        in.*x.tensor = (in.*x.tensor).to(type).detach().requires_grad_(leaf);
    return in;
  };
  State state;
  if (s.past > 0) {
    Options first = options_of(s, "auto");
    first.final_state = true;
    state = run(op(), wide(e.past, false), {}, first).state;
  }
  const Inputs in = wide(e.in, gradients);
  const Options o = options_of(s, form);
  const Result y = run(op(), in, state, o);
  Values all;
  if (gradients) {
    std::vector<at::Tensor> outputs = {y.o}, flows = {e.w.to(type)};
    if (s.norm) {
      outputs.push_back(y.norm);
      flows.push_back(e.wn.to(y.norm.scalar_type()));
    }
    all.names = {"dq", "dk", "dv"};
    all.tensors = torch::autograd::grad(outputs, {in.q, in.k, in.v}, flows);
  }
  all.names.emplace_back("o");
  all.tensors.push_back(y.o.detach());
  if (s.norm) {
    all.names.emplace_back("norm");
    all.tensors.push_back(y.norm.detach());
  }
  return all;
}

void expect_close(const Setting& s, const std::string& form, bool gradients) {
  const Example e = example(s, 3);
  const Values exact = values(s, e, at::kDouble, "chunked", gradients);
  const Values got = values(s, e, s.type, form, gradients);
  const Values plain = values(s, e, s.type, "chunked", gradients);
  for (size_t i = 0; i < exact.names.size(); ++i) {
    Errors own = errors(got.tensors[i], exact.tensors[i]);
    Errors base = errors(plain.tensors[i], exact.tensors[i]);
    const auto over_draws = [&](double Errors::*measure) {
      return largest_of_draws([&](uint64_t seed) {
        const Example other = example(s, seed);
        const Values low = values(s, other, s.type, "chunked", gradients);
        const Values wide = values(s, other, at::kDouble, "chunked", gradients);
        return errors(low.tensors[i], wide.tensors[i]).*measure;
      });
    };
    if (own.max > 2 * base.max + 1e-5) base.max = over_draws(&Errors::max);
    const bool few =
        s.dims.T < 16;  // then the root of the mean square varies from draw to draw too
    if (few && own.rms > 2 * base.rms + 1e-5) base.rms = over_draws(&Errors::rms);
    expect_at_most_twice(exact.names[i], own, base);
  }
}

class AttentionFlashCuda : public testing::TestWithParam<Setting> {};
TEST_P(AttentionFlashCuda, ErrsLittle) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  expect_close(GetParam(), "parallel kernel", GetParam().past == 0);
}
const Dims kFew{.B = 2, .T = 333, .H = 4, .G = 4, .K = 128, .V = 128};
const Dims kGrouped{.B = 2, .T = 517, .H = 8, .G = 2, .K = 64, .V = 64};
const Dims kLine{.B = 1, .T = 700, .H = 4, .G = 2, .K = 64, .V = 64};
INSTANTIATE_TEST_SUITE_P(
    Settings,
    AttentionFlashCuda,
    testing::Values(
        Setting{kFew},
        Setting{kFew, 64},
        Setting{kFew, 64, 4},
        Setting{kFew, 64, 4, 0, true, false},
        Setting{kGrouped, 100, 7},
        Setting{kGrouped, 1, 2},
        Setting{kGrouped, 400, 3},
        Setting{kGrouped, 32, 0, 0, false},
        Setting{{.B = 1, .T = 3, .H = 2, .G = 1, .K = 64, .V = 64}, 2, 4},
        Setting{{.B = 1, .T = 129, .H = 2, .G = 2, .K = 256, .V = 256}, 50, 4},
        Setting{{.B = 1, .T = 129, .H = 2, .G = 2, .K = 96, .V = 96}, 50, 4},
        Setting{kFew, 64, 4, 0, true, false, at::kHalf},
        Setting{kFew, 0, 0, 200},
        Setting{kGrouped, 64, 0, 200},
        Setting{kGrouped, 64, 5, 200},
        Setting{kLine, 0, 0, 0, true, true, at::kBFloat16, {0, 100, 101, 101, 700}},
        Setting{kLine, 64, 0, 0, true, true, at::kBFloat16, {0, 100, 101, 101, 700}},
        Setting{kLine, 64, 0, 0, false, true, at::kBFloat16, {0, 333, 700}},
        Setting{kLine, 64, 5, 0, true, true, at::kBFloat16, {0, 100, 101, 101, 700}},
        Setting{kLine, 16, 2, 0, true, false, at::kBFloat16, {0, 1, 2, 256, 512, 520, 700}}
    )
);

// A packed batch with states and sinks: the same as each sequence alone. A prefix of one token leaves slots empty.
TEST(AttentionPackedCuda, StartsFromStates) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const at::Device gpu(at::kCUDA, 0);
  for (const auto& [window, sinks] : {std::pair<int64_t, int64_t>{0, 0}, {40, 0}, {40, 6}}) {
    const auto packed = [&](int64_t T, const std::vector<int64_t>& starts, uint64_t seed) {
      const Dims line{.B = 1, .T = T, .H = 4, .G = 2, .K = 64, .V = 64};
      Inputs in = sample_inputs({op(), {}, line, gpu, seed}, at::kFloat);
      for (const Input& x : op().inputs) in.*x.tensor = (in.*x.tensor).to(at::kBFloat16);
      in.cu_seqlens = at::tensor(starts, at::kInt).to(gpu);
      return in;
    };
    Options o;
    o.form = "parallel kernel";
    o.window = window;
    o.sinks = sinks;
    o.final_state = o.log_norm = true;
    const Inputs first = packed(150, {0, 1, 61, 61, 150}, 5);
    const Inputs second = packed(400, {0, 300, 301, 390, 400}, 6);
    const Result begun = run(op(), first, {}, o), got = run(op(), second, begun.state, o);
    Options plain = o;
    plain.form = "chunked";
    const auto wide = [](Inputs in) {
      for (const Input& x : op().inputs) in.*x.tensor = (in.*x.tensor).to(at::kDouble);
      return in;
    };
    const Result exact = run(op(), wide(second), run(op(), wide(first), {}, plain).state, plain);
    EXPECT_LT(relative_error(got.o.to(at::kDouble), exact.o), 1e-2) << window << " " << sinks;
    EXPECT_LT(relative_error(got.norm.to(at::kDouble), exact.norm), 1e-2) << window;
    ASSERT_EQ(got.state.parts.size(), exact.state.parts.size());
    for (size_t i = 0; i < got.state.parts.size(); ++i)
      EXPECT_TRUE(
          at::equal(got.state.parts[i].to(exact.state.parts[i].scalar_type()), exact.state.parts[i])
      ) << i
        << " " << window << " " << sinks;
  }
}

class AttentionStepCuda : public testing::TestWithParam<Setting> {};
TEST_P(AttentionStepCuda, ErrsLittle) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  expect_close(GetParam(), "step kernel", false);
}
const Dims kOne{.B = 3, .T = 1, .H = 4, .G = 4, .K = 128, .V = 128};
const Dims kOneGrouped{.B = 2, .T = 1, .H = 12, .G = 2, .K = 64, .V = 64};
INSTANTIATE_TEST_SUITE_P(
    Settings,
    AttentionStepCuda,
    testing::Values(
        Setting{kOne},
        Setting{kOne, 0, 0, 1},
        Setting{kOne, 0, 0, 1000},
        Setting{kOne, 0, 0, 9001, true, true, at::kHalf},
        Setting{kOne, 0, 0, 9001, true, true, at::kFloat},
        Setting{kOneGrouped, 0, 0, 5000},
        Setting{kOneGrouped, 64, 0, 500},
        Setting{kOneGrouped, 64, 5, 500},
        Setting{kOneGrouped, 64, 5, 3},
        Setting{kOneGrouped, 512, 5, 513},
        Setting{{.B = 1, .T = 1, .H = 5, .G = 1, .K = 16, .V = 64}, 0, 0, 300},
        Setting{{.B = 1, .T = 1, .H = 2, .G = 2, .K = 256, .V = 256}, 0, 0, 300},
        Setting{{.B = 64, .T = 1, .H = 16, .G = 16, .K = 128, .V = 128}, 0, 0, 700}
    )
);

// Rows of different lengths, in place, forks: as on a CPU.
TEST(AttentionCacheCuda, StepsInPlace) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const auto& [window, sinks] : {std::pair<int64_t, int64_t>{0, 0}, {40, 0}, {40, 3}}) {
    const at::Device gpu(at::kCUDA, 0);
    const Dims line{.B = 1, .T = 150, .H = 4, .G = 2, .K = 64, .V = 64};
    Options o;
    o.window = window;
    o.sinks = sinks;
    o.final_state = o.log_norm = true;
    Inputs packed = sample_inputs({op(), {}, line, gpu, 5}, at::kFloat);
    packed.cu_seqlens = at::tensor({0, 2, 150}, at::kInt).to(gpu);
    State state = run(op(), packed, {}, o).state;
    State exact;
    for (const at::Tensor& part : state.parts)
      exact.parts.push_back(part.is_floating_point() ? part.to(at::kDouble) : part.clone());
    Dims one = line;
    one.B = 2;
    one.T = 1;
    const void* buffer = nullptr;
    for (uint64_t t = 0; t < 50; ++t) {
      Inputs in = sample_inputs({op(), {}, one, gpu, 20 + t}, at::kFloat);
      const Result y = run(op(), in, state, o);
      EXPECT_EQ(y.form, "step kernel");
      const Result fork = run(op(), in, state, o);  // the second continuation copies
      EXPECT_TRUE(at::equal(fork.o, y.o));
      EXPECT_TRUE(at::equal(fork.state.parts[0], y.state.parts[0]));
      if (t > 0) EXPECT_EQ(y.state.parts[0].storage().data(), buffer);
      buffer = y.state.parts[0].storage().data();
      for (const Input& x : op().inputs) in.*x.tensor = (in.*x.tensor).to(at::kDouble);
      Options plain = o;
      plain.form = "recurrent";
      const Result z = run(op(), in, exact, plain);
      EXPECT_LT(relative_error(y.o.to(at::kDouble), z.o), 1e-5) << t << " " << window;
      EXPECT_LT(relative_error(y.norm.to(at::kDouble), z.norm), 1e-5) << t << " " << window;
      EXPECT_LT(relative_error(y.state.parts[1].to(at::kDouble), z.state.parts[1]), 1e-6);
      state = y.state;
      exact = z.state;
    }
  }
}

// A row whose gradient of o is zero still has one of the norm.
TEST(AttentionNormCuda, SinksGiveTheSameBits) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Setting s{kFew, 64, 4};
  const Example e = example(s, 3);
  const Values first = values(s, e, s.type, "parallel kernel", true);
  const Values again = values(s, e, s.type, "parallel kernel", true);
  for (size_t i = 0; i < first.names.size(); ++i)
    EXPECT_TRUE(at::equal(first.tensors[i], again.tensors[i])) << first.names[i];
}

TEST(AttentionNormCuda, FlowsWhereThatOfOIsZero) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const int64_t sinks : {0, 4}) {
    const Setting s{kFew, 64, sinks};
    Example e = example(s, 3);
    e.w.narrow(1, 0, 200).zero_();
    const Values exact = values(s, e, at::kDouble, "chunked", true);
    const Values got = values(s, e, s.type, "parallel kernel", true);
    for (size_t i = 0; i < exact.names.size(); ++i)
      EXPECT_LT(errors(got.tensors[i], exact.tensors[i]).rms, 1e-2) << exact.names[i];
  }
}

struct FixedCase {
  int64_t window, sinks, slots;
  std::vector<int64_t> seen;  // tokens of each row
};
const FixedCase kFixedCases[] = {
    {0, 0, 64, {1, 63, 17}},
    {0, 0, 1024, {1023, 5, 640}},
    {0, 0, 32768, {32767, 100, 16384}},
    {64, 0, 64, {3, 64, 1000}},
    {64, 4, 64, {2, 66, 129}},
    {300, 4, 300, {299, 301, 5000}}};

// One token of each row on a fixed cache.
struct FixedStep {
  Inputs in;
  State state;
  Options options;

  FixedStep(const FixedCase& c, at::ScalarType type) {
    const auto B = int64_t(c.seen.size());
    const auto like = at::device(at::kCUDA).dtype(type);
    at::manual_seed(3);
    in.q = at::randn({B, 1, 9, 64}, like), in.k = at::randn({B, 1, 3, 64}, like),
    in.v = at::randn({B, 1, 3, 64}, like);
    options.window = c.window, options.sinks = c.sinks;
    options.log_norm = options.final_state = true;
    state = {
        {fixed_cache(at::randn({B, 3, c.slots, 64}, like)),
         fixed_cache(at::randn({B, 3, c.slots, 64}, like)),
         at::tensor(c.seen).unsqueeze(1).expand({B, 3}).contiguous().cuda()}};
    for (int n = 0; n < 2 && c.sinks > 0; ++n)
      state.parts.push_back(at::randn({B, 3, c.sinks, 64}, like));
  }

  Result result() const { return run(op(), in, state, options); }

  // The same on the CPU in fp64.
  Result exact() const {
    Inputs wide;
    for (const auto& [to, from] : {std::pair{&wide.q, &in.q}, {&wide.k, &in.k}, {&wide.v, &in.v}})
      *to = from->to(at::kCPU, at::kDouble);
    State plain;
    for (size_t i = 0; i < state.parts.size(); ++i) {
      const at::Tensor x = state.parts[i].to(at::kCPU);
      const at::Tensor own = x.is_floating_point() ? x.to(at::kDouble) : x;
      plain.parts.push_back(i < 2 ? fixed_cache(own) : own);
    }
    return run(op(), wide, plain, options);
  }

  // Row b alone, with so many slots.
  Result row(int64_t b, int64_t slots) const {
    Inputs one;
    one.q = in.q.narrow(0, b, 1), one.k = in.k.narrow(0, b, 1), one.v = in.v.narrow(0, b, 1);
    State own;
    for (const at::Tensor& part : state.parts) own.parts.push_back(part.narrow(0, b, 1));
    for (size_t i = 0; i < 2; ++i) own.parts[i] = own.parts[i].narrow(2, 0, slots);
    return run(op(), one, own, options);
  }
};

// The step kernel on fixed caches: rows of any length, rings, sinks; the token lies in its slot; a row has the same bits in any
// batch and with any number of slots.
TEST(AttentionFixedCuda, IsThePlainStepAndInvariant) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const c10::NoGradGuard no_graph;
  const auto error = [](const at::Tensor& a, const at::Tensor& b) {
    return (a.to(at::kCPU, at::kDouble) - b).abs().max().item<double>();
  };
  for (const FixedCase& c : kFixedCases) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const FixedStep step(c, type);
      const Result expected = step.exact(), y = step.result();
      EXPECT_EQ(y.form, forms::kStepKernel);
      const double bound = type == at::kFloat ? 1e-5 : 1e-2;
      EXPECT_LE(error(y.o, expected.o), bound) << c.window << " " << c.slots;
      EXPECT_LE(error(y.norm, expected.norm), 10 * bound) << c.window << " " << c.slots;
      for (size_t i = 0; i < 3; ++i)
        EXPECT_LE(error(y.state.parts[i], expected.state.parts[i].to(at::kDouble)), 0) << i;
      for (size_t b = 0; b < c.seen.size(); ++b) {  // alone, with just the slots that it needs
        const int64_t row = int64_t(b), slots = c.window > 0 ? c.slots : c.seen[b] + 1;
        EXPECT_TRUE(step.row(row, slots).o.equal(y.o.narrow(0, row, 1))) << c.slots << " " << b;
      }
    }
  }
}

}  // namespace
}  // namespace horner
