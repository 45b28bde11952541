// The fused parts: their backward against autograd of the definition, in fp64 on a CPU; kernels against both on a GPU.
#include "nn/fused/fused.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "core/device.h"
#include "nn/fused/gates.h"
#include "nn/fused/kernels.h"
#include "nn/fused/pointwise.h"

namespace horner {
namespace {

using Tensors = std::vector<at::Tensor>;
using Part = std::function<Tensors(const Tensors&)>;

Tensors leaves_of(const Tensors& given, const std::function<at::Tensor(const at::Tensor&)>& as) {
  Tensors leaves;
  for (const at::Tensor& x : given) {
    leaves.push_back(x.defined() ? as(x).detach().requires_grad_(true) : x);
  }
  return leaves;
}

// Results and gradients of all leaves, for gradients dy of the results.
Tensors evaluate(const Part& part, const Tensors& leaves, const Tensors& dy) {
  const Tensors y = part(leaves);
  Tensors grads, wanted;
  for (const at::Tensor& x : leaves)
    if (x.defined()) wanted.push_back(x);
  for (size_t i = 0; i < y.size(); ++i)
    grads.push_back(dy[i].to(y[i].device(), y[i].scalar_type()));
  Tensors all = torch::autograd::grad(y, wanted, grads);
  all.insert(all.end(), y.begin(), y.end());
  return all;
}

void expect_near(const Tensors& got, const Tensors& exact, double bound) {
  ASSERT_EQ(got.size(), exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    ASSERT_EQ(got[i].sizes(), exact[i].sizes()) << i;
    const at::Tensor d = got[i].to(at::kCPU, at::kDouble) - exact[i].to(at::kCPU, at::kDouble);
    EXPECT_LE(d.norm().item<double>(), bound * exact[i].norm().item<double>() + 1e-12) << i;
  }
}

at::Tensor numbers(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

struct Case {
  std::string name;
  Tensors given, dy;
  std::vector<bool> single;  // inputs that are fp32 whatever the others are
  Part fused, plain;
};

at::Tensor row_mean(const at::Tensor& x) { return x.mean(-1, true); }

Case add_norm_case(at::IntArrayRef sizes, bool y, at::ScalarType type) {
  const int64_t n = sizes.back();
  return {
      "add_norm",
      {numbers(sizes), y ? numbers(sizes) : at::Tensor(), numbers({n})},
      y ? Tensors{numbers(sizes), numbers(sizes)} : Tensors{numbers(sizes)},
      {true, false, true},
      [y, type](const Tensors& x) {
        const at::ScalarType own = x[0].scalar_type() == at::kDouble ? at::kDouble : type;
        const AddNorm r = fused_add_norm(x[0], x[1], x[2], 1e-5, own);
        return y ? Tensors{r.sum, r.norm} : Tensors{r.norm};
      },
      [y](const Tensors& x) {
        const at::Tensor sum = y ? x[0] + x[1] : x[0];
        const at::Tensor norm = sum * (row_mean(sum.square()) + 1e-5).rsqrt() * x[2];
        return y ? Tensors{sum, norm} : Tensors{norm};
      }};
}

Case gated_norm_case(
    at::IntArrayRef sizes, at::IntArrayRef weight, bool gate, bool layer, Gate act
) {
  return {
      "gated_norm",
      {numbers(sizes),
       weight.empty() ? at::Tensor() : numbers(weight),
       gate ? numbers(sizes) : at::Tensor()},
      {numbers(sizes)},
      {false, true, false},
      [=](const Tensors& x) {
        return Tensors{fused_gated_norm(x[0], x[1], x[2], 1e-5, layer, act)};
      },
      [=](const Tensors& x) {
        at::Tensor y = layer ? x[0] - row_mean(x[0]) : x[0];
        y = y * (row_mean(y.square()) + 1e-5).rsqrt();
        if (x[1].defined()) y = y * x[1];
        if (x[2].defined()) y = y * (act == Gate::silu ? at::silu(x[2]) : x[2].sigmoid());
        return Tensors{y};
      }};
}

Case skip_norm_case(at::IntArrayRef sizes, bool skip) {
  const int64_t n = sizes.back();
  return {
      "skip_norm",
      {numbers(sizes),
       skip ? numbers(sizes) : at::Tensor(),
       skip ? numbers({n}) : at::Tensor(),
       numbers(sizes),
       numbers({n})},
      {numbers(sizes)},
      {false, false, true, false, true},
      [](const Tensors& x) {
        // The gate as a part of a wider tensor.
        const at::Tensor wider = at::cat({x[3], x[3]}, -1), z = wider.narrow(-1, 0, x[3].size(-1));
        return Tensors{fused_skip_norm(x[0], x[1], x[2], z, x[4], 1e-5)};
      },
      [](const Tensors& x) {
        const at::Tensor sum = x[1].defined() ? x[0] + x[2] * x[1] : x[0];
        const at::Tensor t = sum * at::silu(x[3]);
        return Tensors{t * (row_mean(t.square()) + 1e-5).rsqrt() * x[4]};
      }};
}

Case swiglu_case(at::IntArrayRef sizes) {
  return {
      "swiglu",
      {numbers(sizes), numbers(sizes)},
      {numbers(sizes)},
      {false, false},
      [](const Tensors& x) { return Tensors{fused_swiglu(x[0], x[1])}; },
      [](const Tensors& x) { return Tensors{at::silu(x[0]) * x[1]}; }};
}

Case decay_case(at::IntArrayRef sizes, bool negated, bool b, bool c) {
  const int64_t n = sizes.back();
  return {
      "decay",
      {4 * numbers(sizes), b ? numbers({n}) : at::Tensor(), c ? numbers({n}) : at::Tensor()},
      {numbers(sizes)},
      {false, true, true},
      [=](const Tensors& x) {
        return Tensors{fused_decay(x[0], {negated, x[1], x[2], 0.25})};
      },
      [=](const Tensors& x) {
        at::Tensor y = negated ? -x[0] : x[0];
        if (b) y = y + x[1];
        y = -0.25 * at::softplus(y, 1, 100);
        return Tensors{c ? y * x[2] : y};
      }};
}

Case keys_case(at::IntArrayRef sizes, bool c) {
  const int64_t n = sizes.back();
  return {
      "decay and keys",
      {4 * numbers(sizes), c ? numbers({n}).exp() : at::Tensor()},
      {numbers(sizes), numbers(sizes)},
      {false, true},
      [](const Tensors& x) {
        const DecayAndKeys y = fused_decay_and_keys(x[0], {true, {}, x[1], 0.25});
        return Tensors{y.g, y.k};
      },
      [](const Tensors& x) {
        at::Tensor g = -0.25 * at::softplus(-x[0], 1, 100);
        if (x[1].defined()) g = g * x[1];
        return Tensors{g, 1 - g.exp()};
      }};
}

Case elu1_case(at::IntArrayRef sizes) {
  return {
      "elu1",
      {4 * numbers(sizes)},
      {numbers(sizes)},
      {false},
      [](const Tensors& x) { return Tensors{fused_elu1(x[0])}; },
      [](const Tensors& x) {
        return Tensors{at::where(x[0] > 0, x[0] + 1, x[0].clamp_max(0).exp())};
      }};
}

Case scale_case(at::IntArrayRef sizes) {
  return {
      "scale_heads",
      {numbers(sizes), numbers(sizes.slice(0, sizes.size() - 1))},
      {numbers(sizes)},
      {false, true},
      [](const Tensors& x) { return Tensors{fused_scale_heads(x[0], x[1])}; },
      [](const Tensors& x) { return Tensors{x[0] * x[1].unsqueeze(-1)}; }};
}

Case augment_case(int64_t K, int64_t V) {
  return {
      "augment",
      {numbers({2, 70, 4, K}),
       numbers({2, 70, 4, K}),
       numbers({4, K}),
       numbers({2, 70, 4, V}),
       numbers({2, 70, 4, V})},
      {numbers({2, 70, 4, V})},
      {false, false, true, false, false},
      [](const Tensors& x) {
        return Tensors{fused_augment({x[0], x[1], x[2], x[3], x[4], -0.5})};
      },
      [](const Tensors& x) {
        return Tensors{x[4] + ((x[0] * x[1] * x[2]).sum(-1, true) * x[3]).sigmoid() - 0.5};
      }};
}

Case rg_lru_case(int64_t n) {
  return {
      "rg_lru gates",
      {numbers({2, 33, n}),
       numbers({2, 33, n}),
       numbers({2, 33, n}),
       numbers({n}),
       numbers({n}),
       numbers({n}).exp()},
      {numbers({2, 33, n}), numbers({2, 33, n})},
      {false, false, false, true, true, true},
      [](const Tensors& x) {
        at::Tensor first = at::zeros({2, 33}, x[5].options());
        first.select(1, 0).fill_(1);
        return pointwise(Pointwise::rg_lru_gates, {x[0], x[1], x[2]}, {x[3], x[4], x[5]}, first);
      },
      [](const Tensors& x) {
        const at::Tensor g = -x[5] * (x[0] + x[3]).sigmoid();
        at::Tensor root = (1 - (2 * g).exp()).sqrt();
        root = at::cat({at::ones_like(root.narrow(1, 0, 1)), root.narrow(1, 1, 32)}, 1);
        return Tensors{g, root * (x[1] + x[4]).sigmoid() * x[2]};
      }};
}

Case qlstm_case(int64_t n) {
  return {
      "qlstm gates",
      {4 * numbers({3, 17, 2 * n}), numbers({3, 17, n})},
      {numbers({3, 17, n}), numbers({3, 17, n})},
      {false, false},
      [n](const Tensors& x) {  // parts of wider rows
        return pointwise(
            Pointwise::qlstm_gates, {x[0].narrow(2, 0, n), x[0].narrow(2, n, n), x[1]}
        );
      },
      [n](const Tensors& x) {
        const at::Tensor f = x[0].narrow(2, 0, n), i = x[0].narrow(2, n, n);
        return Tensors{f.sigmoid().log(), i.sigmoid() * x[1]};
      }};
}

Case qlstm_out_case(int64_t n) {
  return {
      "qlstm out",
      {numbers({3, 17, n}), numbers({3, 17, n}), 2 * numbers({3, 17, n})},
      {numbers({3, 17, n})},
      {false, true, false},
      [](const Tensors& x) {
        return pointwise(Pointwise::qlstm_out, {x[0], x[1], x[2]});
      },
      [](const Tensors& x) { return Tensors{x[0].sigmoid() * x[1] * at::gelu(x[2])}; }};
}

Case gelu_gate_case(int64_t n) {
  return {
      "gelu gate",
      {numbers({3, 17, n}), 2 * numbers({3, 17, n})},
      {numbers({3, 17, n})},
      {true, false},
      [](const Tensors& x) {
        return pointwise(Pointwise::gelu_gate, {x[0], x[1]});
      },
      [](const Tensors& x) { return Tensors{x[0] * at::gelu(x[1], "tanh")}; }};
}

// Rows of less than a warp, of a warp, of many warps; widths that fill no power of two.
std::vector<Case> cases(at::ScalarType type) {
  at::manual_seed(0);
  std::vector<Case> all;
  for (const int64_t n : {8, 64, 96, 128, 256, 264, 1024, 1536, 4096}) {
    for (const bool y : {true, false}) all.push_back(add_norm_case({3, 7, n}, y, type));
    all.push_back(skip_norm_case({2, 5, n}, n != 96));
  }
  for (const int64_t V : {8, 32, 64, 96, 128, 256, 512}) {
    for (const Gate act : {Gate::silu, Gate::sigmoid}) {
      all.push_back(gated_norm_case({2, 5, 4, V}, {V}, true, act == Gate::sigmoid, act));
      if (V <= 256) all.push_back(gated_norm_case({2, 5, 4, V}, {4, V}, true, true, act));
    }
    all.push_back(gated_norm_case({2, 5, 4, V}, {}, true, false, Gate::silu));
    all.push_back(gated_norm_case({2, 300, 4, V}, {V}, false, V == 64, Gate::none));
  }
  for (const int64_t n : {8, 48, 512, 1024}) {
    all.push_back(decay_case({3, 400, n}, true, false, false));
    all.push_back(decay_case({3, 7, n}, false, true, true));
    all.push_back(keys_case({3, 400, n}, n == 512));
    all.push_back(elu1_case({3, 7, 5, n}));
    all.push_back(scale_case({3, 7, 5, n}));
  }
  for (const auto& [K, V] : {std::pair<int64_t, int64_t>{32, 64}, {64, 32}, {40, 128}})
    all.push_back(augment_case(K, V));
  for (const int64_t n : {8, 264, 1024}) {
    for (const auto& make : {rg_lru_case, qlstm_case, qlstm_out_case, gelu_gate_case})
      all.push_back(make(n));
  }
  all.push_back(swiglu_case({3, 5, 8}));
  all.push_back(swiglu_case({2, 77, 264}));
  return all;
}

TEST(Fused, BackwardsAreThoseOfTheDefinitions) {
  for (const Case& c : cases(at::kDouble)) {
    SCOPED_TRACE(c.name + " " + c10::str(c.given[0].sizes()));
    const auto same = [](const at::Tensor& x) { return x.clone(); };
    const Tensors exact = evaluate(c.plain, leaves_of(c.given, same), c.dy);
    expect_near(evaluate(c.fused, leaves_of(c.given, same), c.dy), exact, 1e-10);
  }
}

TEST(Fused, NothingIsFusedOnACpu) {
  EXPECT_FALSE(fusable({at::randn({2, 8})}));
  const at::Tensor a = at::randn({2, 8}), b = at::randn({2, 8});
  EXPECT_TRUE(swiglu(a, b).equal(at::silu(a) * b));
}

void expect_kernels(at::ScalarType type, double bound) {
  for (const Case& c : cases(type)) {
    SCOPED_TRACE(c.name + " " + c10::str(c.given[0].sizes()));
    Tensors rounded, own;  // the same numbers in fp64 and in the kernel's types
    for (size_t i = 0; i < c.given.size(); ++i) {
      const at::ScalarType t = c.single[i] ? at::kFloat : type;
      own.push_back(c.given[i].defined() ? c.given[i].to(at::kCUDA, t) : at::Tensor());
      rounded.push_back(own[i].defined() ? own[i].to(at::kCPU, at::kDouble) : at::Tensor());
    }
    Tensors dy;
    for (const at::Tensor& d : c.dy) dy.push_back(d.to(type).to(at::kDouble));
    const auto same = [](const at::Tensor& x) { return x.clone(); };
    const Tensors exact = evaluate(c.plain, leaves_of(rounded, same), dy);
    const Tensors got = evaluate(c.fused, leaves_of(own, same), dy);
    expect_near(got, exact, bound);
    const Tensors again = evaluate(c.fused, leaves_of(own, same), dy);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].equal(again[i])) << i;
  }
}

TEST(FusedCuda, KernelsAreTheDefinitions) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  expect_kernels(at::kFloat, 1e-5);
  expect_kernels(at::kBFloat16, 4e-3);
}

TEST(FusedCuda, TakesWhatFits) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const auto bf16 = at::device(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor x = at::randn({2, 4, 64}, bf16);
  EXPECT_TRUE(fusable({x, x}));
  EXPECT_FALSE(fusable({x, x.to(at::kFloat)}));
  EXPECT_FALSE(fusable({x.narrow(2, 0, 7)}));
  EXPECT_FALSE(fusable({x.to(at::kDouble)}));
  EXPECT_TRUE(norm_fusable(x, at::ones({4, 64}, at::kCUDA), {}));
  EXPECT_FALSE(norm_fusable(x, at::ones({3, 64}, at::kCUDA), {}));
}

}  // namespace
}  // namespace horner
