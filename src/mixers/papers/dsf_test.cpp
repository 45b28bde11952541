// The dynamical-systems framework (arXiv:2405.15731).
#include "mixers/papers/worked.h"

namespace horner::worked {
namespace {

const Weights nu = {{"eta_weight", vec({.1, -.2, .3, 0.})}};

System system(Mixer& m, const at::Tensor& x = four_tokens) {
  const c10::NoGradGuard no_graph;
  return m.dsf(x);
}

TEST(DynamicalSystems, WorkedExample) {
  expect_rows(
      output("linear", ""),
      {.806370590, -1.128667653, .508937398, -.334227750, 1.003659102, .146990109}
  );
  expect_rows(
      output("norm_attention", "normaliser=exp", nu),
      {0, 0, 1.221402758, -2.824493878, .555613666, -.902872206, 6.325, -5.6}
  );
  expect_rows(
      output("norm_attention", "normaliser=softplus", nu),
      {1.671852560, -3.866159045, .877854973, -1.426514331, 9.125046134, -8.079092229},
      5e-9
  );
  expect_rows(
      output("norm_attention", "normaliser=sigmoid", nu),
      {2.221402758, -5.136993878, 1.305613666, -2.121622206, 12.65, -11.2}
  );
}

TEST(DynamicalSystems, Transitions) {
  const auto expect = [](const char* name, const std::string& options, std::vector<double> later) {
    SCOPED_TRACE(name + options);
    const auto m = example(name, options, std::string(name) == "norm_attention" ? nu : Weights{});
    expect_numbers(system(*m).Lambda.select(2, 0).flatten().narrow(0, 1, 3), std::move(later));
  };
  expect("softmax", plain, {.327492549, .978151779, .407374345});
  expect("linear", "", {.370441849, 1.278160504, .349406995});
  expect("norm_attention", "normaliser=exp", {1.349858808, .606530660, 1.349858808});
  expect("norm_attention", "normaliser=softplus", {1.244521462, .700105575, 1.232574074});
  expect("norm_attention", "normaliser=sigmoid", {1.166190215, .783657180, 1.148885034});
  // eta of softmax is 1 / B.
  const at::Tensor B = system(*example("softmax", plain)).B.select(2, 0).squeeze(0);  // (T,F)
  expect_numbers(1 / B.diagonal(), {1, 3.053504587, 3.121708363, 7.662996950}, 5e-9);
}

// Equation (15b) writes 1/eta_{t-1} into the write term: its numbers are others than attention's.
TEST(DynamicalSystems, MisprintedWriteTerm) {
  System s = system(*example("linear", ""));
  expect_numbers(rebuild(s).select(2, 0).squeeze(0)[3], {1.003659102, .146990109});
  const at::Tensor later = s.Lambda.narrow(1, 1, 3);                     // eta_{t-1} / eta_t
  s.B = at::cat({s.B.narrow(1, 0, 1), s.B.narrow(1, 1, 3) / later}, 1);  // k_t / eta_{t-1}
  expect_rows(
      rebuild(s).select(2, 0).squeeze(0),
      {1, -2, 1.135439711, -.964133093, .910819259, -.236878427, 2.532082162, .832572160}
  );
}

TEST(DynamicalSystems, RowsOfAttentionSumToOne) {
  const at::Tensor x = at::randn({2, 15, 16}, at::kDouble);
  for (const char* name : {"softmax", "linear", "taylor", "luna", "window"}) {
    const auto m = mixer(name, 16, "");
    const c10::NoGradGuard no_graph;
    EXPECT_LT((m->map(x).sum(-1) - 1).abs().max().item<double>(), 1e-12) << name;
  }
}

// Lemma 2: a larger system whose reading vector is 0 in the new places contains the smaller one.
TEST(DynamicalSystems, LargerStatesContainSmallerOnes) {
  const at::Tensor x = at::randn({2, 9, 16}, at::kDouble);
  for (const char* name : {"linear", "gla", "taylor"}) {
    const auto m = mixer(name, 16, "");
    System s = system(*m, x);
    const at::Tensor small = rebuild(s);
    const auto more = [](const at::Tensor& y, const at::Tensor& extra) {
      return at::cat({y, extra}, -1);
    };
    s.Lambda = s.Lambda.expand_as(s.C);
    const at::Tensor random = at::randn_like(s.C.narrow(3, 0, 2));
    s = {more(s.Lambda, random), more(s.B, 3 * random), more(s.C, 0 * random), s.D, s.u};
    EXPECT_LT(relative_error(rebuild(s), small), 1e-14) << name;
  }
}

// One channel, A = (1,2), step ln 2, B = C = (1,1), u = (1,2): y = 2 ln 2, 4.75 ln 2.
TEST(DynamicalSystems, S6ByHand) {
  const double step = std::log(2.0);
  Inputs in;
  in.g = (-step * vec({1, 2})).expand({1, 2, 1, 2});
  in.v = step * vec({1, 2}).view({1, 2, 1, 1}).expand({1, 2, 1, 2});
  const at::Tensor y = run(find_op("scan"), in, {}, {}).o.sum(-1);
  expect_numbers(y, {1.386294361, 3.292449108}, 1e-9);
}

// S6 whose channels share the step and whose A is a multiple of I is SSD: one decay per token.
TEST(DynamicalSystems, S6WithOneDecayIsSsd) {
  const auto m = mixer("s6", 16, "state=4");
  const at::Tensor row = at::randn({1, 1}, at::kDouble);
  set(*m, {{"A_log", vec({.3})}, {"step_weight", row}, {"step_bias", vec({-1})}});
  const c10::NoGradGuard no_graph;
  const Core core = m->core(at::randn({2, 13, 16}, at::kDouble));
  Inputs one;  // a single head of K = 4, V = E
  one.q = core.in.q.narrow(2, 0, 1);
  one.k = core.in.k.narrow(2, 0, 1);
  one.v = core.in.v.transpose(2, 3);
  one.g = core.in.g.select(3, 0).narrow(2, 0, 1);  // (B,T,1)
  at::Tensor o = run(find_op("linear"), one, {}, {}).o.transpose(2, 3);
  o = o + core.skip.unsqueeze(-1) * core.in.v;
  EXPECT_LT(relative_error(o, core.o), 1e-12);
}

// The S6 transition at s = 1 is the plain one with the forget gate's logits negated.
TEST(DynamicalSystems, ReversedQlstm) {
  const auto a = mixer("qlstm", 16, ""), b = mixer("qlstm", 16, "transition=reversed");
  const c10::NoGradGuard no_graph;
  auto from = a->named_parameters();
  for (auto& parameter : b->named_parameters()) {
    if (parameter.key() != "power") parameter.value().copy_(from[parameter.key()]);
  }
  b->named_parameters()["gates_weight"].narrow(0, 0, 32).neg_();
  b->named_parameters()["gates_bias"].narrow(0, 0, 32).neg_();
  const at::Tensor x = at::randn({2, 9, 16}, at::kDouble);
  EXPECT_LT(relative_error(forward(*b, x), forward(*a, x)), 1e-12);
}

// e^{-s softplus(u)} = sigmoid(-u)^s: the reversed transition of a closed gate (u = 0) at s = 2.
TEST(DynamicalSystems, ReversedTransitionIsAPower) {
  const auto m = mixer("qlstm", 16, "transition=reversed,block=plain");
  set(*m, {{"gates_weight", at::zeros(1)}, {"gates_bias", at::zeros(1)}, {"power", vec({2})}});
  const at::Tensor Lambda = system(*m, at::randn({1, 5, 16}, at::kDouble)).Lambda;
  EXPECT_LT((Lambda - .25).abs().max().item<double>(), 1e-15);
}

// RG-LRU keeps its size: a^2 and the square of the factor on the input add up to 1.
TEST(DynamicalSystems, RgLruTransitionAndWriteAreACircle) {
  const auto m = mixer("rg_lru", 16, "conv=0");
  set(*m,
      {{"in_weight", at::eye(16, at::kDouble)},
       {"input_weight", at::zeros(1)},
       {"input_bias", vec({1e3})}});  // i = 1
  const at::Tensor x = at::randn({1, 8, 16}, at::kDouble);
  const c10::NoGradGuard no_graph;
  const Core core = m->core(x);
  const at::Tensor a = core.in.g.exp().flatten(2), b = core.in.v.flatten(2) / x;
  EXPECT_LT((a.square() + b.square() - 1).narrow(1, 1, 7).abs().max().item<double>(), 1e-12);
  EXPECT_LT((b.select(1, 0) - 1).abs().max().item<double>(), 1e-12);  // an empty past
}

// A constant normaliser is a constant factor of plain linear attention.
TEST(DynamicalSystems, ConstantNormaliserIsAFactor) {
  const Weights constant = {{"eta_weight", at::zeros(1)}, {"eta_bias", vec({.7})}};
  const at::Tensor o = output("norm_attention", "normaliser=exp", constant);
  const at::Tensor sums = at::matmul(at::matmul(q, k.t()).tril(), v);
  EXPECT_LT(furthest(o, sums / std::exp(.7)), 1e-14);
}

}  // namespace
}  // namespace horner::worked
