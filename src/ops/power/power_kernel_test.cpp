// The kernels of `power` against fp64: their error is at most twice that of the plain version in the same
// precision, for o, the final state and every gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "core/check.h"
#include "core/device.h"
#include "ops/chunks.h"
#include "ops/contract.h"
#include "ops/kernel_error.h"
#include "ops/power/power.h"

namespace horner {
namespace {

struct Setting {
  Dims dims;
  std::string gate = "none";  // none, head
  double decay = 0;           // 0: sampled
  bool state = false;         // an initial state, and a gradient of the final one
  std::string norm = "sum";
  int64_t order = 2;
  std::vector<double> coefficients = {};
  at::ScalarType type = at::kBFloat16;
  std::string form = "chunked kernel";
};

void PrintTo(const Setting& s, std::ostream* out) {
  *out << fmt::format(
      "{}, {}, {}, order {}, norm {}, decay {} {}, {}",
      s.form,
      c10::toString(s.type),
      describe(s.dims),
      s.order,
      s.norm,
      s.gate,
      s.decay,
      s.state ? "with states" : "no states"
  );
}

Options options_of(const Setting& s) {
  Options o;
  o.order = s.order;
  o.coefficients = s.coefficients;
  o.norm = s.norm;
  o.odd = s.norm == "sum" && s.order % 2 == 1;
  o.chunk = 128;
  return o;
}

// By the given form in the given precision.
Values evaluate(const Setting& s, const Problem& p, at::ScalarType type, std::string form) {
  Options o = options_of(s);
  o.form = form;
  o.final_state = form == "chunked" || form == "chunked kernel" || form == "wide kernel";
  return values_of(find_op("power"), p, s.state, type, [&](const Inputs& in, const State& state) {
    const Result y = run(find_op("power"), in, state, o);
    EXPECT_TRUE(!form.ends_with("kernel") || y.form == form) << y.form;
    return y;
  });
}

Problem sample(const Setting& s, uint64_t seed = 3) {
  const at::Device gpu(at::kCUDA, 0);
  Variant variant;
  variant.gate = s.gate;
  Problem p;
  p.in = sample_inputs({find_op("power"), variant, s.dims, gpu, seed}, at::kFloat);
  const auto rounded = [&](const at::Tensor& x) { return x.to(s.type).to(at::kDouble); };
  p.in.q = rounded(p.in.q);
  p.in.k = rounded(p.in.k);
  p.in.v = rounded(p.in.v);
  if (p.in.g.defined() && s.decay != 0) p.in.g = at::full_like(p.in.g, s.decay);
  const Dims& d = s.dims;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(gpu);
  p.w = rounded(at::randn({d.B, d.T, d.H, d.V}, options));
  if (!s.state) return p;
  const int64_t F = int64_t(feature_count(d.K, s.order)), columns = d.V + (s.norm == "sum" ? 1 : 0);
  p.S0 = at::randn({d.B, d.G, F, columns}, options) * 0.3;
  if (s.norm == "sum")
    p.S0.select(2, 0).select(2, d.V).abs_().add_(100.0);  // a sum of many weights
  p.wS = at::randn({d.B, d.G, F, columns}, options) * 0.03;
  return p;
}

std::string base_form(const Setting& s) {
  return s.form == "chunked kernel" || s.form == "wide kernel" ? "chunked" : "parallel";
}
Values exact_values(const Setting& s, const Problem& p) {
  return evaluate(s, p, at::kDouble, base_form(s));
}
Values plain_values(const Setting& s, const Problem& p) {
  std::optional<RoundedProducts> low;
  if (s.type == at::kBFloat16) low.emplace();
  return evaluate(s, p, s.type, base_form(s));
}

// The largest error of the plain version's value, with the inputs of a seed.
double largest_error(const Setting& s, size_t value, uint64_t seed) {
  const Problem p = sample(s, seed);
  return errors(plain_values(s, p).tensors[value], exact_values(s, p).tensors[value]).max;
}

class PowerKernelCuda : public testing::TestWithParam<Setting> {};
TEST_P(PowerKernelCuda, ErrsAtMostTwiceAsMuch) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Setting& s = GetParam();
  const Problem p = sample(s);
  const Values exact = exact_values(s, p), plain = plain_values(s, p);
  const Values kernel = evaluate(s, p, s.type, s.form);
  for (size_t i = 0; i < exact.names.size(); ++i) {
    if (!exact.tensors[i].defined()) continue;  // order 0 reads no q
    // Where the exact value is lost in the rounding of what it is a difference of, nothing can be asked.
    Errors base = errors(plain.tensors[i], exact.tensors[i]);
    if (exact.tensors[i].abs().max().item<double>() < 1e-12) continue;
    const Errors got = errors(kernel.tensors[i], exact.tensors[i]);
    if (got.max > 2 * base.max + 1e-5)
      base.max = largest_of_draws([&](uint64_t seed) { return largest_error(s, i, seed); });
    expect_at_most_twice(exact.names[i], got, base);
  }
}

void add_chunked(std::vector<Setting>& list) {
  for (const int64_t T : {1, 127, 128, 129, 1009, 4097}) {
    const Dims narrow{.B = 2, .T = T, .H = 4, .G = 4, .K = 16, .V = 64};
    const Dims grouped{.B = 1, .T = T, .H = 4, .G = 2, .K = 32, .V = 64};
    list.push_back({narrow});
    list.push_back({.dims = narrow, .state = true});
    list.push_back({.dims = narrow, .gate = "head", .state = true});
    list.push_back({.dims = narrow, .gate = "head", .decay = -1e-3});
    list.push_back({.dims = narrow, .gate = "head", .decay = -20, .norm = "none"});
    list.push_back({.dims = grouped, .gate = "head", .state = true});
    list.push_back({.dims = grouped, .norm = "none"});
  }
  const Dims odd{.B = 1, .T = 300, .H = 6, .G = 2, .K = 24, .V = 80};
  list.push_back({.dims = odd, .gate = "head", .state = true});
  list.push_back(
      {.dims = {.B = 1, .T = 300, .H = 2, .G = 2, .K = 16, .V = 128}, .gate = "head", .state = true}
  );
  list.push_back({.dims = {.B = 1, .T = 300, .H = 2, .G = 2, .K = 8, .V = 32}, .state = true});
  list.push_back({.dims = odd, .state = true, .coefficients = {0, 0, 1}});
  list.push_back({.dims = odd, .gate = "head", .state = true, .norm = "none", .order = 1});
  list.push_back({.dims = odd, .state = true, .order = 0});
  list.push_back({.dims = odd, .norm = "none", .coefficients = {0.5, -1, 2}});
}

void add_parallel(std::vector<Setting>& list) {
  for (const int64_t T : {1, 64, 65, 191, 1009, 2048}) {
    for (const int64_t D : {64, 128}) {
      Setting s{.dims = {.B = 2, .T = T, .H = 4, .G = 4, .K = D, .V = D}};
      s.form = "parallel kernel";
      list.push_back(s);
      s.order = 4;
      s.dims.G = 2;
      s.dims.V = 40;
      list.push_back(s);
      s.order = 3;
      s.norm = "none";
      list.push_back(s);
    }
  }
  for (const int64_t T : {1, 64, 65, 191, 1009, 2048}) {
    Setting s{.dims = {.B = 2, .T = T, .H = 4, .G = 4, .K = 64, .V = 64}, .gate = "head"};
    s.form = "parallel kernel";
    list.push_back(s);
    s.decay = -1e-3;
    s.dims.G = 2;
    list.push_back(s);
    s.decay = -20;
    s.norm = "none";
    s.order = 3;
    list.push_back(s);
    s.decay = 0;
    s.norm = "sum";
    s.order = 2;
    s.dims.V = 40;
    s.coefficients = {0, 0, 1};
    list.push_back(s);
  }
}

void add_wide(std::vector<Setting>& list) {
  for (const int64_t T : {2, 130, 1024, 1025, 2500}) {
    Setting s{.dims = {.B = 2, .T = T, .H = 2, .G = 2, .K = 64, .V = 64}, .form = "wide kernel"};
    list.push_back(s);
    s.state = true;
    list.push_back(s);
    s.norm = "none";
    s.dims.V = 40;
    list.push_back(s);
  }
  for (const int64_t T : {300, 4200}) {
    Setting s{.dims = {.B = 1, .T = T, .H = 2, .G = 1, .K = 128, .V = 128}, .form = "wide kernel"};
    s.state = true;
    list.push_back(s);
  }
  Setting wide{
      .dims = {.B = 1, .T = 1500, .H = 4, .G = 2, .K = 44, .V = 72}, .form = "wide kernel"};
  wide.coefficients = {0, 0, 1};
  list.push_back(wide);
  wide.state = true;
  wide.coefficients = {};
  list.push_back(wide);
  wide.coefficients = {0.5, -1, 2};
  wide.norm = "none";
  list.push_back(wide);
  wide.coefficients = {};
  for (wide.order = 0; wide.order < 2; ++wide.order) list.push_back(wide);
}

void add_direct(std::vector<Setting>& list) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const int64_t T : {1, 130, 257}) {
      Setting s{
          .dims = {.B = 2, .T = T, .H = 4, .G = 2, .K = 33, .V = 70}, .gate = "head", .order = 4};
      s.type = type;
      s.form = "direct kernel";
      list.push_back(s);
      s.gate = "none";
      s.norm = "none";
      s.order = 3;
      list.push_back(s);
    }
  }
}

std::vector<Setting> settings() {
  std::vector<Setting> list;
  for (const auto add : {add_chunked, add_parallel, add_wide, add_direct}) add(list);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Settings, PowerKernelCuda, testing::ValuesIn(settings()));

// 65,536 tokens without decay: sums over all of them keep their precision.
TEST(PowerKernelsCuda, LongTime) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  Setting s{.dims = {.B = 1, .T = 65536, .H = 1, .G = 1, .K = 16, .V = 64}};
  const Problem p = sample(s);
  const Values exact = evaluate(s, p, at::kDouble, "chunked");
  const Values got = evaluate(s, p, s.type, "chunked kernel");
  for (size_t i = 0; i < exact.names.size(); ++i)
    EXPECT_LT(errors(got.tensors[i], exact.tensors[i]).rms, 5e-3) << exact.names[i];
}

TEST(PowerKernelsCuda, ResetIsAFreshStart) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const int64_t K : {16, 64}) {
    Setting s{.dims = {.B = 1, .T = 300, .H = 2, .G = 2, .K = K, .V = 64}, .gate = "head"};
    s.form = K == 16 ? "chunked kernel" : "parallel kernel";
    expect_fresh_start(find_op("power"), sample(s), 150, s.form, [&](const auto&... as) {
      return evaluate(s, as...);
    });
  }
}

TEST(PowerKernelsCuda, SameBitsAndAnyStrides) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  Setting chunked{
      .dims = {.B = 2, .T = 2500, .H = 4, .G = 2, .K = 16, .V = 128},
      .gate = "head",
      .state = true};
  Setting parallel{.dims = {.B = 2, .T = 500, .H = 4, .G = 2, .K = 64, .V = 128}};
  parallel.form = "parallel kernel";
  Setting wide{.dims = {.B = 1, .T = 2500, .H = 4, .G = 2, .K = 64, .V = 72}, .state = true};
  wide.form = "wide kernel";
  for (const Setting& s : {chunked, parallel, wide}) {
    Problem p = sample(s);
    const Values one = evaluate(s, p, s.type, s.form);
    for (const Input& input : {kQ, kK, kV}) {
      at::Tensor& x = p.in.*input.tensor;
      x = x.transpose(1, 2).contiguous().transpose(1, 2);  // (B,H,T,K) in memory
    }
    const Values two = evaluate(s, p, s.type, s.form);
    for (size_t i = 0; i < one.tensors.size(); ++i)
      EXPECT_TRUE(at::equal(one.tensors[i], two.tensors[i])) << s.form << " " << one.names[i];
  }
}

// With the switch on, a row of a batch is the same bits in any batch.
TEST(PowerKernelsCuda, BatchInvariant) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  setenv("HORNER_BATCH_INVARIANT", "1", 1);
  Setting chunked{.dims = {.B = 66, .T = 2048, .H = 2, .G = 2, .K = 16, .V = 64}, .gate = "head"};
  Setting wide{.dims = {.B = 6, .T = 2048, .H = 2, .G = 2, .K = 64, .V = 64}};
  wide.form = "wide kernel";
  for (const Setting& s : {chunked, wide}) {
    const Problem p = sample(s);
    Problem one = p;
    for (at::Tensor* x : {&one.in.q, &one.in.k, &one.in.v, &one.in.g, &one.w})
      if (x->defined()) *x = x->narrow(0, 5, 1);
    const Values all = evaluate(s, p, s.type, s.form), own = evaluate(s, one, s.type, s.form);
    for (size_t i = 0; i < all.tensors.size(); ++i)
      EXPECT_TRUE(at::equal(all.tensors[i].narrow(0, 5, 1), own.tensors[i]))
          << s.form << " " << all.names[i];
  }
  unsetenv("HORNER_BATCH_INVARIANT");
}

// One token at a time: the states and outputs of the whole, wherever rows and heads begin in memory.
TEST(PowerKernelsCuda, Steps) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  using Widths = std::pair<int64_t, int64_t>;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const auto& [K, V] : {Widths{16, 64}, {16, 100}, {7, 1}, {5, 2}, {9, 17}, {40, 128}}) {
      Setting s{
          .dims = {.B = 2, .T = 40, .H = 4, .G = 2, .K = K, .V = V}, .gate = "head", .type = type};
      if (V == 1 || V == 100) s.norm = "none";
      const Inputs in = sample(s).in;
      const auto as = [&](at::ScalarType wanted) {
        Inputs x = in;
        for (at::Tensor* y : {&x.q, &x.k, &x.v}) *y = y->to(wanted);
        return x;
      };
      Options o = options_of(s);
      o.final_state = true;
      o.form = "recurrent";
      const Result whole = run(find_op("power"), as(at::kDouble), {}, o);
      const Inputs low = as(type);
      o.form = "auto";
      Result one;
      std::vector<at::Tensor> all;
      for (int64_t t = 0; t < 40; ++t) {
        one = run(find_op("power"), tokens(find_op("power"), low, t, 1), one.state, o);
        EXPECT_EQ(one.form, "step kernel");
        all.push_back(one.o);
        if (t != 20) continue;
        at::Tensor& S = one.state.parts[0];  // not at 16 bytes
        S = at::constant_pad_nd(S.flatten(), {1, 0}).narrow(0, 1, S.numel()).view_as(S);
      }
      const double bound = type == at::kFloat ? 1e-5 : 5e-3;
      EXPECT_LT(errors(at::cat(all, 1), whole.o).rms, bound);
      EXPECT_LT(errors(one.state.parts[0], whole.state.parts[0]).rms, 1e-5);
    }
  }
}

// What only a backward reads is left out without one; o is the same.
TEST(PowerKernelsCuda, SameOutputWithoutAGraph) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const int64_t K : {16, 64}) {
    Setting s{.dims = {.B = 2, .T = 300, .H = 4, .G = 2, .K = K, .V = 64}, .gate = "head"};
    s.form = K == 16 ? "chunked kernel" : "parallel kernel";
    const Problem p = sample(s);
    Inputs in = p.in;
    for (at::Tensor* x : {&in.q, &in.k, &in.v}) *x = x->to(at::kBFloat16);
    const Values all = evaluate(s, p, at::kBFloat16, s.form);
    const size_t o = size_t(std::find(all.names.begin(), all.names.end(), "o") - all.names.begin());
    Options options = options_of(s);
    EXPECT_TRUE(at::equal(run(find_op("power"), in, {}, options).o, all.tensors[o])) << s.form;
  }
}

TEST(PowerKernelsCuda, ChosenOrRefused) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  Setting s{.dims = {.B = 1, .T = 70, .H = 2, .G = 2, .K = 16, .V = 64}};
  Inputs in = sample(s).in;
  const Op& op = find_op("power");
  Options o = options_of(s);
  o.form = "chunked kernel";
  EXPECT_THROW(run(op, in, {}, o), UsageError);  // fp64
  for (at::Tensor* x : {&in.q, &in.k, &in.v}) *x = x->to(at::kBFloat16);
  o.form = "auto";
  EXPECT_EQ(run(op, in, {}, o).form, "chunked kernel");
  o.causal = false;
  EXPECT_FALSE(run(op, in, {}, o).form.ends_with("kernel"));
}

}  // namespace
}  // namespace horner
