// InLine attention (arXiv:2412.06590).
#include <set>

#include "mixers/papers/worked.h"

namespace horner::worked {
namespace {

const std::string causal = "residual=0", both = "residual=0,causal=false";

// Biases of 0, and one for the keys or values where it is asked for.
Weights biases(double key = 0, double value = 0) {
  return {
      {"q_bias", at::zeros(1)},
      {"k_bias", vec({key})},
      {"v_bias", vec({value})},
      {"out_bias", at::zeros(1)}};
}

TEST(Inline, WorkedExample) {
  expect_rows(
      output("inline", both, biases()),
      {.257635930,
       1.224031539,
       1.133232999,
       .170276707,
       .623618932,
       .332552189,
       1.527666000,
       -.621351431}
  );
  expect_rows(
      output("inline", causal, biases()),
      {1, -2, .871533978, -1.421902901, .360629985, .172371095, 1.527666000, -.621351431}
  );
}

TEST(Inline, Weights) {
  const at::Tensor map = weights_of(*example("inline", causal, biases()));
  expect_numbers(map[1].narrow(0, 0, 2), {.743067956, .256932044});
  expect_numbers(map[2].narrow(0, 0, 3), {.249855449, .573946057, .176198493});
  expect_numbers(map[3], {.331759222, .411308734, -.158796108, .415728152});
  for (const std::string& options : {causal, both}) {
    const auto m = mixer("inline", 16, options);
    const c10::NoGradGuard no_graph;
    const at::Tensor sums = m->map(at::randn({2, 20, 16}, at::kDouble)).sum(-1);
    EXPECT_LT((sums - 1).abs().max().item<double>(), 1e-14);
  }
}

// Its error against softmax is quadratic in the size of the scores.
TEST(Inline, IsFirstOrderSoftmax) {
  for (const auto& [f, error] : {std::pair{.1, 7.9e-3}, {.01, 7.9e-5}, {.001, 7.9e-7}}) {
    const Weights less = {{"q_weight", doubled(f * q)}};
    Weights own = biases();
    own.insert(less.begin(), less.end());
    const double difference =
        furthest(output("inline", both, own), output("softmax", plain + "causal=false", less));
    EXPECT_NEAR(difference, error, 0.01 * error);
  }
}

// Keys may be shifted; shifted values shift the output; a query of 0 reads the mean.
TEST(Inline, Shifts) {
  for (const std::string& options : {causal, both}) {
    const at::Tensor o = output("inline", options, biases());
    EXPECT_LT(furthest(output("inline", options, biases(5)), o), 1e-13);
    EXPECT_LT(furthest(output("inline", options, biases(0, 5)), o + 5), 1e-13);
  }
  Weights still = biases();
  still["q_weight"] = at::zeros(1);
  expect_numbers(output("inline", both, still)[0], {.625, .5625}, 1e-15);
}

// Two queries that linear attention cannot tell apart: one reading for both. InLine and softmax
// can.
TEST(Inline, IsInjectiveLinearAttentionIsNot) {
  // Tokens 1 and 2 carry the two queries; both directions, so that both read the same four keys.
  const auto two_rows = [](const char* name, const std::string& options, const at::Tensor& pair) {
    const auto m = example(name, options, {{"q_weight", doubled(at::cat({pair, pair}, 0))}});
    return weights_of(*m).narrow(0, 0, 2);  // (2,T)
  };
  const at::Tensor pair = rows({.5, -1, 1.25, -.5945348918918356});
  const at::Tensor confused = two_rows("linear", "causal=false", pair);
  EXPECT_LT(furthest(confused[0], confused[1]), 1e-9);
  expect_numbers(confused[0], {.306943788, .142206803, .171143634, .379705775});
  expect_numbers(
      two_rows("softmax", plain + "causal=false", pair),
      {.197741028,
       .081701696,
       .522816248,
       .197741028,
       .270910668,
       .058309445,
       .291364749,
       .379415137}
  );
  expect_numbers(
      two_rows("inline", both, pair),
      {.244475728,
       .023504859,
       .487543684,
       .244475728,
       .320399777,
       -.063606484,
       .338596474,
       .404610233}
  );
  // With relu features a query and its double read alike.
  const at::Tensor twice = rows({1, .25, 2, .5});
  Inputs in;
  in.q = twice.repeat({2, 1}).relu().view({1, 4, 1, 2});
  in.k = k.relu().view({1, 4, 1, 2});
  in.v = at::eye(4, at::kDouble).view({1, 4, 1, 4});
  Options sum;
  sum.norm = "sum";
  sum.causal = false;
  const at::Tensor divided = run(find_op("linear"), in, {}, sum).o.view({4, 4});
  EXPECT_LT(furthest(divided[0], divided[1]), 1e-15);
  expect_numbers(divided[0], {.339622642, .075471698, .075471698, .509433962});
  expect_numbers(
      two_rows("inline", both, twice),
      {.338388348,
       .095320392,
       .128466022,
       .437825239,
       .426776695,
       -.059359217,
       .006932044,
       .625650478}
  );
}

// A residual whose taps are 0 is no residual.
TEST(Inline, ZeroResidualIsNone) {
  const at::Tensor x = at::randn({1, 9, 16}, at::kDouble);
  const auto with = mixer("inline", 16, ""), without = mixer("inline", 16, causal);
  set(*with, {{"tap_weight", at::zeros(1)}, {"tap_bias", at::zeros(1)}});
  EXPECT_LT(relative_error(forward(*with, x), forward(*without, x)), 1e-14);
}

// fp32 and 2000 tokens with offsets of 100 in keys and values: plain sums lose what the layer keeps.
TEST(Inline, OffsetsDoNotCancel) {
  const int64_t T = 2000;
  at::manual_seed(3);
  const at::Tensor Q = at::randn({T}, at::kDouble), K = at::randn({T}, at::kDouble) + 100,
                   V = at::randn({T}, at::kDouble) + 100;
  const auto sums = [&](at::ScalarType type) {  // mean v + q (sum k v - sum k sum v / n) / n
    const at::Tensor a = K.to(type), b = V.to(type), n = at::arange(1, T + 1, a.options());
    const at::Tensor z = a.cumsum(0), w = b.cumsum(0), s = (a * b).cumsum(0);
    return (w / n + Q.to(type) * (s - z * w / n) / n).to(at::kDouble);
  };
  const auto layer = [&](at::ScalarType type) {  // K = 1: token t is (Q_t, K_t, V_t)
    const auto m = mixer("inline", 3, "heads=3,residual=0");
    const at::Tensor I = at::eye(3, at::kDouble);
    Weights w = biases();
    w["q_weight"] = I[0].expand({3, 3});
    w["k_weight"] = I[1].expand({3, 3});
    w["v_weight"] = I[2].expand({3, 3});
    w["out_weight"] = I;
    set(*m, w);
    m->to(type);
    const at::Tensor x = at::stack({Q, K, V}, 1).unsqueeze(0).to(type);
    return forward(*m, x).select(2, 0).squeeze(0).to(at::kDouble);
  };
  const at::Tensor exact = layer(at::kDouble);
  EXPECT_LT(furthest(sums(at::kDouble), exact), 1e-9);
  const double plain_error = furthest(sums(at::kFloat), exact);
  EXPECT_LT(50 * furthest(layer(at::kFloat), exact), plain_error);
}

// The residual of an image is a 3x3 kernel on its grid: a token is reached from its eight neighbours, not from the end of the
// row above.
TEST(Inline, ResidualOfAnImageIsASquare) {
  const auto m = mixer("inline", 8, "heads=2,causal=false,columns=4");
  EXPECT_EQ(m->named_parameters()["tap_weight"].size(2), 9 * 4);
  const c10::NoGradGuard no_graph;
  for (const char* name : {"q_weight", "q_bias", "k_weight", "k_bias"})
    m->named_parameters()[name].zero_();  // the attention is a mean over all tokens
  const at::Tensor x = at::randn({1, 12, 8}, at::kDouble);  // 3 rows of 4
  State none, other;
  at::Tensor y = x.clone();
  y.select(1, 3).add_(1);  // the end of the first row
  y.select(1, 9).sub_(1);  // the mean stays
  const at::Tensor change = (m->forward(y, none) - m->forward(x, other)).abs().sum(-1)[0];
  const std::set<int64_t> reached = {2, 3, 6, 7, 4, 5, 8, 9, 10};  // around 3, around 9
  for (int64_t t = 0; t < 12; ++t)
    EXPECT_EQ(change[t].item<double>() > 1e-9, reached.contains(t)) << t;
}

}  // namespace
}  // namespace horner::worked
