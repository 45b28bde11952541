// MetaLA (arXiv:2411.10741).
#include "mixers/papers/worked.h"

namespace horner::worked {
namespace {

const at::Tensor logits = rows({1, .5, -.5, 1, .25, -1.25, 1.5, .75});

std::shared_ptr<Mixer> metala(const at::Tensor& decay) {
  const auto m = mixer("metala", 4, "heads=2,expand_k=1,conv=0");
  set(*m,
      {{"q_weight", doubled(q)},
       {"decay_weight", doubled(decay)},
       {"v_weight", doubled(v)},
       {"gate_weight", at::zeros(1)},
       {"gate_bias", vec({1.2784645427610738})},  // SiLU = 1
       {"augment", vec({.5, -1.})},
       {"out_weight", at::eye(4, at::kDouble)}});
  return m;
}

TEST(MetaLa, WorkedExample) {
  const auto m = metala(logits);
  expect_rows(
      forward(*m, four_tokens).squeeze(0).narrow(1, 0, 2),
      {-.928735523,
       .928735523,
       .995537699,
       -.995537699,
       -.018060818,
       .018060818,
       -.999740297,
       .999740297},
      5e-9
  );
  const c10::NoGradGuard no_graph;
  const Core core = m->core(four_tokens);
  expect_rows(
      core.o.squeeze(0).select(1, 0),
      {-.013789243,
       .027578487,
       .040556782,
       -.024623876,
       -.025033251,
       .033025395,
       -.000928423,
       .267886403}
  );
  expect_rows(
      core.in.g.exp().squeeze(0).select(1, 0),
      {.980611566,
       .970804848,
       .940936323,
       .980611566,
       .964643946,
       .910400590,
       .987490572,
       .976110543}
  );
}

// C2: any softmax row is met by decays alone, a_s = P_{s-1} / P_s; K channels meet K of them.
TEST(MetaLa, DecayAloneMeetsAnySoftmaxRow) {
  const at::Tensor p = at::stack({vec({.1, .4, .2, .3}), vec({.7, .1, .1, .1})}, 1);  // (T,K)
  const at::Tensor a = 1 - p / p.cumsum(0);
  expect_numbers(a.select(1, 0), {0, .2, .714285714, .7});
  Inputs in;
  in.g = a.log().view({1, 4, 1, 2});
  in.k = (1 - a).view({1, 4, 1, 2});
  in.v = at::eye(4, at::kDouble).view({1, 4, 1, 4});
  Options options;
  options.scale = 1 / std::sqrt(2.0);
  for (const int64_t channel : {0, 1}) {
    in.q = (std::sqrt(2.0) * at::eye(2, at::kDouble)[channel]).expand_as(in.k);
    const at::Tensor o = run(find_op("linear"), in, {}, options).o;
    EXPECT_LT(furthest(o.select(1, 3).flatten(), p.select(1, channel)), 1e-15);
  }
}

// The weights of a channel add up to 1 - a_1 .. a_t, at most 1; without decay nothing is written.
TEST(MetaLa, WeightsOfAChannelAddUpToWhatDecayed) {
  const c10::NoGradGuard no_graph;
  Core core = metala(logits)->core(four_tokens);
  core.in.v = at::ones_like(core.in.v.narrow(3, 0, 1));
  for (const int64_t channel : {0, 1}) {
    core.in.q = at::eye(2, at::kDouble)[channel].expand_as(core.in.k);
    const at::Tensor sums = run(find_op("linear"), core.in, {}, {}).o.squeeze(-1);
    const at::Tensor left = core.in.g.select(3, channel).cumsum(1).exp();
    EXPECT_LT(furthest(sums, 1 - left), 1e-15);
  }
  const at::Tensor kept = metala(at::full({4, 2}, 1e3, at::kDouble))->core(four_tokens).o;
  EXPECT_EQ(kept.abs().max().item<double>(), 0);
}

// Self-augmentation at its start is a constant that LayerNorm takes away and RMSNorm does not.
TEST(MetaLa, SelfAugmentationIsVoidAtTheStart) {
  const at::Tensor x = at::randn({1, 7, 16}, at::kDouble);
  for (const char* norm : {"layer", "rms"}) {
    const auto with = mixer("metala", 16, fmt::format("norm={}", norm));
    const auto without = mixer("metala", 16, fmt::format("norm={},augment=false", norm));
    const double difference = relative_error(forward(*with, x), forward(*without, x));
    EXPECT_EQ(difference < 1e-10, std::string(norm) == "layer") << difference;
  }
}

// Forgetting everything at every token, over a long time.
TEST(MetaLa, StrongDecayStaysFinite) {
  const auto m = mixer("metala", 16, "temperature=1,conv=0");
  set(*m, {{"decay_weight", vec({-80})}});
  m->to(at::kFloat);
  const at::Tensor y = forward(*m, at::ones({1, 4096, 16}));
  EXPECT_TRUE(at::isfinite(y).all().item<bool>());
}

}  // namespace
}  // namespace horner::worked
