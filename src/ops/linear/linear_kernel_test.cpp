// The kernels of `linear` against fp64: their error is at most twice that of the plain version in the same
// precision, for o, the final state and every gradient.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>
#include <limits>

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
  std::string norm = "none";
};

void PrintTo(const Setting& s, std::ostream* out) {
  *out << fmt::format(
      "{}, {}, {}, decay {} {}, {}, norm {}",
      s.form,
      c10::toString(s.type),
      describe(s.dims),
      s.gate,
      s.decay,
      s.state ? "with states" : "no states",
      s.norm
  );
}

at::Tensor low(const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); }

// The chunked formula in bf16 with fp32 sums, unfused: every operand of a product is rounded, and so is its
// gradient on the way back.
Result unfused(const Inputs& in, const State& state, const Options& options) {
  const int64_t C = 64;
  const Operands x = operands(in);
  const bool sum = options.norm == "sum";
  const at::Tensor q = to_chunks(x.q * *options.scale, C), k = to_chunks(x.k, C),
                   v = to_chunks(sum ? at::constant_pad_nd(x.v, {0, 1}, 1.0) : x.v, C);
  const at::Tensor g = x.g.defined() ? to_chunks(x.g, C) : at::zeros_like(k.narrow(-1, 0, 1));
  const at::Tensor P = low(decayed_products(low(q), low(k), g));
  const at::Tensor inside = at::matmul(P, low(v));
  const at::Tensor writes =
      at::matmul(low(k * until_end(g).exp()).transpose(-1, -2), low(v));  // (B,G,1,n,K,V)
  const at::Tensor kept = g.sum(-2).exp().unsqueeze(-1), read = since_start(g).exp();
  at::Tensor S = state.empty() ? at::zeros_like(writes.select(3, 0)) : state.parts[0].unsqueeze(2);
  const bool per_key = g.size(-1) > 1;  // then the factor is one of q, not of the row
  std::vector<at::Tensor> y;
  for (int64_t i = 0; i < writes.size(3); ++i) {
    const at::Tensor row = per_key ? q.select(3, i) * read.select(3, i) : q.select(3, i);
    const at::Tensor from_state = at::matmul(low(row), low(S));
    y.push_back(per_key ? from_state : from_state * read.select(3, i));
    S = kept.select(3, i) * S + writes.select(3, i);
  }
  at::Tensor o = from_chunks(inside + at::stack(y, 3), x.v.size(-2));
  const int64_t V = x.v.size(-1);
  if (sum) o = o.narrow(-1, 0, V) / o.narrow(-1, V, 1).clamp_min(options.eps);
  Result result;
  result.o = to_output(o, in);
  result.state.parts = {S.squeeze(2)};
  return result;
}

// By the given form in the given precision.
Values evaluate(const Setting& s, const Problem& p, at::ScalarType type, std::string form) {
  Options o;
  o.form = form;
  o.final_state = true;
  o.scale = s.scale;
  o.norm = s.norm;
  return values_of(find_op("linear"), p, s.state, type, [&](const Inputs& in, const State& state) {
    if (form == "unfused") return unfused(in, state, o);
    const Result y = run(find_op("linear"), in, state, o);
    EXPECT_TRUE(!form.ends_with("kernel") || y.form == form) << y.form;
    return y;
  });
}

Problem sample(const Setting& s, uint64_t seed = 3) {
  const at::Device gpu(at::kCUDA, 0);
  Variant variant;
  variant.gate = s.gate;
  variant.options.norm = s.norm;
  Problem p;
  p.in = sample_inputs({find_op("linear"), variant, s.dims, gpu, seed}, at::kFloat);
  const auto rounded = [&](const at::Tensor& x) { return x.to(s.type).to(at::kDouble); };
  p.in.q = rounded(p.in.q);
  p.in.k = rounded(p.in.k * 0.3);
  p.in.v = rounded(p.in.v);
  if (p.in.g.defined() && s.decay != 0) p.in.g = at::full_like(p.in.g, s.decay);
  const Dims& d = s.dims;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(gpu);
  p.w = rounded(at::randn({d.B, d.T, d.H, d.V}, options));
  p.S0 = at::randn({d.B, d.G, d.K, d.V + (s.norm == "sum" ? 1 : 0)}, options);
  if (s.norm == "sum") p.S0.select(-1, d.V).abs_();
  p.wS = at::randn_like(p.S0);
  return p;
}

Values exact_values(const Setting& s, const Problem& p) {
  return evaluate(s, p, at::kDouble, "chunked");
}
Values plain_values(const Setting& s, const Problem& p) {
  return evaluate(s, p, s.type, s.form == "chunked kernel" ? "unfused" : "chunked");
}

// The largest error of the plain version's value, with the inputs of a seed.
double largest_error(const Setting& s, size_t value, uint64_t seed) {
  const Problem p = sample(s, seed);
  return errors(plain_values(s, p).tensors[value], exact_values(s, p).tensors[value]).max;
}

class LinearKernelCuda : public testing::TestWithParam<Setting> {};
TEST_P(LinearKernelCuda, ErrsAtMostTwiceAsMuch) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Setting& s = GetParam();
  const Problem p = sample(s);
  const Values exact = exact_values(s, p), plain = plain_values(s, p);
  const Values kernel = evaluate(s, p, s.type, s.form);
  for (size_t i = 0; i < exact.names.size(); ++i) {
    if (exact.tensors[i].abs().max().item<double>() == 0) continue;
    Errors base = errors(plain.tensors[i], exact.tensors[i]);
    const Errors got = errors(kernel.tensors[i], exact.tensors[i]);
    if (s.norm == "sum" && got.max > 2 * base.max + 1e-5)
      base.max = largest_of_draws([&](uint64_t seed) { return largest_error(s, i, seed); });
    expect_at_most_twice(exact.names[i], got, base);
  }
}

void add_chunked_lengths(std::vector<Setting>& list) {
  for (const int64_t T : {1, 63, 64, 65, 127, 1000, 4097}) {
    const Dims square{.B = 2, .T = T, .H = 4, .G = 4, .K = 128, .V = 128};
    const Dims grouped{.B = 1, .T = T, .H = 4, .G = 2, .K = 64, .V = 64};
    list.push_back({square, "none"});
    list.push_back({square, "head", 0, true});
    list.push_back({square, "head", -20, true});
    list.push_back({square, "head", -1e-3});
    list.push_back({grouped, "none", 0, true});
    list.push_back({grouped, "head", 0, true});
    list.push_back({grouped, "head"});
    for (Setting sum : {
             Setting{square, "none"},
             Setting{square, "head", 0, true},
             Setting{square, "head", -1e-3},
             Setting{grouped, "none", 0, true},
             Setting{grouped, "head", 0, true},
             Setting{grouped, "head"},
         }) {
      sum.norm = "sum";
      if (T > 1 || sum.state) list.push_back(sum);  // one token alone has the weight 1, exactly
    }
    list.push_back({square, "key", 0, true});
    list.push_back({square, "key", -20, true});
    list.push_back({square, "key", -1e-3});
    list.push_back({grouped, "key", 0, true});
  }
}

void add_chunked_shapes(std::vector<Setting>& list) {
  list.push_back({{.B = 1, .T = 300, .H = 6, .G = 2, .K = 48, .V = 80}, "key", 0, true});
  list.push_back({{.B = 2, .T = 130, .H = 2, .G = 2, .K = 128, .V = 16}, "key", -0.05, true});
  list.push_back({{.B = 1, .T = 65536, .H = 1, .G = 1, .K = 64, .V = 64}, "key", 0, true});
  list.push_back({{.B = 1, .T = 65536, .H = 1, .G = 1, .K = 64, .V = 64}, "key", -1e-3});
  for (const char* norm : {"none", "sum"}) {
    std::vector<Setting> some = {
        {{.B = 1, .T = 300, .H = 6, .G = 2, .K = 48, .V = 80}, "head", 0, true},
        {{.B = 1, .T = 300, .H = 2, .G = 2, .K = 128, .V = 16}, "head", 0, true},
        {.dims = {.B = 1, .T = 130, .H = 2, .G = 1, .K = 64, .V = 128},
         .gate = "head",
         .state = true,
         .scale = 0.125},
    };
    for (const char* gate :
         {"none", "head"}) {  // more values than rows of a state; and in parts of the time
      some.push_back({{.B = 2, .T = 300, .H = 4, .G = 2, .K = 128, .V = 256}, gate, 0, true});
      some.push_back({{.B = 1, .T = 2100, .H = 2, .G = 2, .K = 64, .V = 264}, gate, 0, true});
    }
    for (Setting& one : some) {
      one.norm = norm;
      list.push_back(one);
    }
  }
}

void add_recurrent(std::vector<Setting>& list) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const char* gate : {"none", "head", "key"}) {
      for (const int64_t T : {1, 65, 1000}) {
        Setting s{{.B = 2, .T = T, .H = 4, .G = 2, .K = 33, .V = 70}, gate, 0, true, type};
        s.form = "recurrent kernel";
        s.scale = 0.5;
        list.push_back(s);
        s.state = false;
        s.decay = -20;
        if (T == 1000) list.push_back(s);
      }
    }
  }
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {  // the step
    for (const char* gate : {"none", "head", "key"}) {
      for (const int64_t K : {30, 100, 256}) {
        Setting s{{.B = 3, .T = 1, .H = 4, .G = 2, .K = K, .V = 132}, gate, 0, true, type};
        s.form = "recurrent kernel";
        s.scale = 0.5;
        list.push_back(s);
      }
    }
  }
  Setting large{{.B = 1, .T = 200, .H = 1, .G = 1, .K = 256, .V = 130}, "key", 0, true, at::kFloat};
  large.form = "recurrent kernel";
  list.push_back(large);
}

std::vector<Setting> settings() {
  std::vector<Setting> list;
  for (const auto add : {add_chunked_lengths, add_chunked_shapes, add_recurrent}) add(list);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Settings, LinearKernelCuda, testing::ValuesIn(settings()));

struct KernelCase {
  const char *form, *gate, *norm = "none";
};
constexpr KernelCase kKernelCases[] = {
    {"chunked kernel", "head"},
    {"chunked kernel", "head", "sum"},
    {"chunked kernel", "key"},
    {"recurrent kernel", "head"},
    {"recurrent kernel", "key"},
};

TEST(LinearKernelsCuda, ResetIsAFreshStart) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const auto& [form, gate, norm] : kKernelCases) {
    Setting s{{.B = 1, .T = 200, .H = 2, .G = 2, .K = 64, .V = 64}, gate};
    s.norm = norm;
    expect_fresh_start(find_op("linear"), sample(s), 90, form, [&](const auto&... as) {
      return evaluate(s, as...);
    });
  }
}

TEST(LinearKernelsCuda, SameBitsAndAnyStrides) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const auto& [form, gate, norm] : kKernelCases) {
    Setting s{{.B = 2, .T = 500, .H = 4, .G = 2, .K = 128, .V = 64}, gate, 0, true};
    s.norm = norm;
    Problem p = sample(s);
    const Values one = evaluate(s, p, s.type, form);
    for (const Input& input : {kQ, kK, kV}) {
      at::Tensor& x = p.in.*input.tensor;
      x = x.transpose(1, 2).contiguous().transpose(1, 2);  // (B,H,T,K) in memory
    }
    const Values two = evaluate(s, p, s.type, form);
    for (size_t i = 0; i < one.tensors.size(); ++i) {
      EXPECT_TRUE(at::equal(one.tensors[i], two.tensors[i])) << form << gate << " " << one.names[i];
    }
  }
}

// With the switch on, a row of a batch is the same bits in any batch.
TEST(LinearKernelsCuda, BatchInvariant) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  setenv("HORNER_BATCH_INVARIANT", "1", 1);
  for (const auto& [form, gate, norm] : kKernelCases) {
    Setting s{{.B = 66, .T = 2048, .H = 2, .G = 2, .K = 64, .V = 64}, gate};
    s.norm = norm;
    const Problem p = sample(s);
    Problem one = p;
    for (at::Tensor* x : {&one.in.q, &one.in.k, &one.in.v, &one.in.g, &one.w})
      *x = x->narrow(0, 5, 1);
    const Values all = evaluate(s, p, s.type, form), own = evaluate(s, one, s.type, form);
    for (size_t i = 0; i < all.tensors.size(); ++i) {
      EXPECT_TRUE(at::equal(all.tensors[i].narrow(0, 5, 1), own.tensors[i]))
          << form << gate << " " << all.names[i];
    }
  }
  unsetenv("HORNER_BATCH_INVARIANT");
}

// A packed batch in one launch is its sequences, each on its own, bit for bit; an empty one leaves its state as it
// is. g in bf16 is read as it is.
TEST(LinearKernelsCuda, PacksPerKey) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Op& op = find_op("linear");
  Setting s{{.B = 1, .T = 500, .H = 4, .G = 2, .K = 64, .V = 128}, "key", 0, true};
  const Problem p = sample(s);
  const at::Device gpu(at::kCUDA, 0);
  const std::vector<int64_t> starts = {0, 70, 70, 198, 500};
  const auto options = at::TensorOptions().dtype(at::kFloat).device(gpu);
  const at::Tensor S0 = at::randn({4, 2, 64, 128}, options), dS = at::randn_like(S0);
  for (const at::ScalarType gate_type : {at::kFloat, at::kBFloat16}) {
    Inputs all = p.in;
    std::vector<at::Tensor> leaves;
    for (const Input& input : op.inputs) {
      at::Tensor& x = all.*input.tensor;
      if (!x.defined()) continue;
      x = x.to(input.name == "g" ? gate_type : at::kBFloat16).detach().requires_grad_(true);
      leaves.push_back(x);
    }
    Options o;
    o.final_state = true;
    const at::Tensor w = p.w.to(at::kBFloat16), first = S0.clone().requires_grad_(true);
    leaves.push_back(first);
    const auto grads = [&](const Result& y, const at::Tensor& dy, const at::Tensor& dstate) {
      return torch::autograd::grad(
          {y.o, y.state.parts[0]}, leaves, {dy, dstate}, true, false, true
      );
    };
    all.cu_seqlens = at::tensor(starts, at::kInt).to(gpu);
    const Result packed = run(op, all, {{first}}, o);
    EXPECT_EQ(packed.form, "chunked kernel");
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
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_TRUE(at::equal(alone[i].narrow(1, t, length), whole[i].narrow(1, t, length)))
            << op.inputs[i].name;
      }
    }
  }
}

// auto takes the kernel, says so, and a kernel that cannot run is refused with the reason.
TEST(LinearKernelsCuda, ChosenOrRefused) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  Setting s{{.B = 1, .T = 70, .H = 2, .G = 2, .K = 64, .V = 64}, "head"};
  Inputs in = sample(s).in;
  const Op& op = find_op("linear");
  EXPECT_EQ(run(op, in, {}, {}).form, "recurrent kernel");
  Options o;
  o.form = "chunked";
  EXPECT_EQ(run(op, in, {}, o).form, "chunked");
  o.form = "chunked kernel";
  EXPECT_THROW(run(op, in, {}, o), UsageError);  // fp64
  for (at::Tensor* x : {&in.q, &in.k, &in.v}) *x = x->to(at::kBFloat16);
  EXPECT_EQ(run(op, in, {}, {}).form, "chunked kernel");
  Inputs packed = in;
  packed.cu_seqlens = at::tensor({0, 30, 70}, at::kInt).to(in.v.device());
  const Result both = run(op, packed, {}, {});
  EXPECT_EQ(both.form, "chunked kernel");
  Inputs first = in;
  for (at::Tensor* x : {&first.q, &first.k, &first.v, &first.g}) *x = x->narrow(1, 0, 30);
  EXPECT_TRUE(at::equal(both.o.narrow(1, 0, 30), run(op, first, {}, {}).o));
  o = {};
  o.norm = "sum";
  EXPECT_EQ(run(op, in, {}, o).form, "chunked kernel");
  o.log_norm = true;
  EXPECT_EQ(run(op, in, {}, o).form, "chunked");
  o = {};
  o.causal = false;
  EXPECT_EQ(run(op, in, {}, o).form, "chunked");
  EXPECT_EQ(run(op, tokens(op, in, 0, 1), {}, {}).form, "recurrent kernel");
  s.dims.T = 3000;  // where the plain chunked form is faster
  EXPECT_EQ(run(op, sample(s).in, {}, {}).form, "chunked");
}

}  // namespace
}  // namespace horner
