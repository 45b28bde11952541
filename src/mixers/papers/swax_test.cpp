// SWAX (arXiv:2509.24552): a window, and mLSTM's exponential gate (arXiv:2405.04517).
#include <torch/csrc/autograd/autograd.h>

#include "mixers/papers/worked.h"

namespace horner::worked {
namespace {

// A window as long as the sequence is softmax, of one token it is v.
TEST(Swax, WindowLimits) {
  const at::Tensor x = at::randn({2, 11, 16}, at::kDouble);
  const auto full = mixer("softmax", 16, ""), wide = mixer("window", 16, "window=11"),
             one = mixer("window", 16, "window=1");
  EXPECT_LT(relative_error(forward(*wide, x), forward(*full, x)), 1e-12);
  const c10::NoGradGuard no_graph;
  EXPECT_LT(furthest(one->map(x), at::eye(11, at::kDouble)), 1e-14);
  State state;
  Context context;
  context.window = 11;
  EXPECT_TRUE(at::equal(one->forward(x, state, context), forward(*wide, x)));
}

struct Gated {
  Inputs in;
  at::Tensor i, f;
  Result operator()(const State& state = {}) const {
    Options options;
    options.scale = 1 / std::sqrt(double(in.q.size(3)));
    options.final_state = true;
    options.norm = "bounded";
    Inputs gated = in;
    gated.i = i;
    gated.g = f;
    return run(find_op("linear"), gated, state, options);
  }
};

Gated sample(int64_t T) {
  at::manual_seed(2);
  Gated s;
  for (at::Tensor* x : {&s.in.q, &s.in.k, &s.in.v}) *x = at::randn({1, T, 2, 4}, at::kDouble);
  s.i = at::randn({1, T, 2}, at::kDouble);
  s.f = at::log_sigmoid(at::randn({1, T, 2}, at::kDouble));
  return s;
}

TEST(Swax, MlstmWorkedExample) {
  Gated s;
  s.in.q = rows({1, 0, 0, 1, 1, 1, 1, -1}).view({1, 4, 1, 2});
  s.in.k = rows({1, 0, 0, 1, 1, 0, 0, 1}).view({1, 4, 1, 2});
  s.in.v = rows({1, 2, 3, -1, 0, 1, 2, 2}).view({1, 4, 1, 2});
  s.i = vec({0, 1, -1, 2}).view({1, 4, 1});
  s.f = at::log_sigmoid(vec({2, 0, 1, -1})).view({1, 4, 1});
  const Result y = s();
  expect_rows(
      y.o.view({4, 2}),
      {.707106781, 1.414213562, 3, -1, 2.325635766, -.326499591, -2.107507227, -1.805287143}
  );
  const at::Tensor S = y.state.parts[0].view({2, 3});  // [C, n]
  expect_numbers(S.narrow(1, 0, 2), {.013304266, .039998337, 2.216988464, 1.927670512});
  expect_numbers(S.select(1, 2), {.026694071, 1.072329488});
  EXPECT_EQ(y.state.parts[1].item<double>(), 2);
}

// The stabiliser's start does not matter. A constant on all input gates does, through the floor of
// 1, unless |q n| is above it everywhere.
TEST(Swax, StabiliserIsFree) {
  Gated s = sample(12);
  const at::Tensor y = s().o;
  for (const double m0 : {-30.0, 0.0, 25.0}) {
    const State start{{at::zeros({1, 2, 4, 5}, at::kDouble), at::full({1, 2}, m0, at::kDouble)}};
    EXPECT_LT(relative_error(s(start).o, y), 1e-12);
  }
  s.i = s.i - 3;
  EXPECT_GT(relative_error(s().o, y), 1e-2);
}

// Under a norm free of scale n drops out, and C holds k and v as a product alone: v.dv = k.dk for
// every token. The first forget gate meets an empty state.
TEST(Swax, GradientsOfKeyAndValueBalance) {
  Gated s = sample(10);
  for (at::Tensor* x : {&s.in.k, &s.in.v, &s.f}) x->requires_grad_(true);
  at::Tensor h = s().o;
  h = h - h.mean(-1, true);
  h = h / h.norm(2, -1, true);
  const at::Tensor loss = (h * at::randn_like(h)).sum();
  const auto d = torch::autograd::grad({loss}, {s.in.k, s.in.v, s.f});
  const at::Tensor kdk = (s.in.k * d[0]).sum(-1), vdv = (s.in.v * d[1]).sum(-1);
  EXPECT_LT(furthest(kdk, vdv), 1e-12);
  EXPECT_GT(vdv.abs().max().item<double>(), 1e-3);
  EXPECT_LT(d[2].select(1, 0).abs().max().item<double>(), 1e-12);
}

TEST(Swax, ExtremeGatesStayFinite) {
  for (const double i : {80.0, -80.0}) {
    for (const double f : {80.0, -80.0}) {
      Gated s = sample(20);
      s.i = at::full_like(s.i, i, at::kFloat);
      s.f = at::log_sigmoid(at::full_like(s.f, f, at::kFloat));
      for (at::Tensor* x : {&s.in.q, &s.in.k, &s.in.v}) *x = x->to(at::kFloat);
      EXPECT_TRUE(at::isfinite(s().o).all().item<bool>()) << i << " " << f;
    }
  }
}

}  // namespace
}  // namespace horner::worked
