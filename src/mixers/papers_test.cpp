// Worked numbers and properties that the papers state, by name.
//
// With x = I, token t is the t-th unit vector, so a projection whose columns are given vectors
// hands exactly those to the op; D = 4, two equal heads of 2, and W_o = I show its output.
#include <gtest/gtest.h>

#include <numbers>

#include "core/check.h"
#include "mixers/contract.h"
#include "mixers/features/luna.h"
#include "mixers/position/position.h"

namespace horner {
namespace {

at::Tensor rows(std::vector<double> numbers) {
  return at::tensor(numbers, at::kDouble).view({-1, 2});
}

const at::Tensor q = rows({.5, -1, 1, .25, -.75, .5, .2, 1.5});
const at::Tensor k = rows({1, .5, -.5, 1, .25, -1.25, 1.5, .75});
const at::Tensor v = rows({1, -2, .5, .25, -1, 3, 2, 1});

using Weights = std::map<std::string, at::Tensor>;

std::shared_ptr<Mixer> mixer(std::string_view name, int64_t D, const std::string& options) {
  at::manual_seed(1);
  auto m = make_mixer(name, D, options);
  m->to(at::kDouble);
  return m;
}

void set(Mixer& m, const Weights& weights) {
  const c10::NoGradGuard no_graph;
  auto parameters = m.named_parameters();
  for (const auto& [name, value] : weights) {
    at::Tensor* parameter = parameters.find(name);
    ASSERT_NE(parameter, nullptr) << m.name() << " has no " << name;
    parameter->copy_(value.expand_as(*parameter));
  }
}

at::Tensor forward(Mixer& m, const at::Tensor& x) {
  const c10::NoGradGuard no_graph;
  State state;
  return m.forward(x, state);
}

at::Tensor doubled(const at::Tensor& x) { return at::cat({x, x}, 1).t().contiguous(); }

// o (4,2) of a mixer that gets q, k, v as above.
at::Tensor worked(std::string_view name, const std::string& options, Weights more = {}) {
  const auto m = mixer(name, 4, "heads=2," + options);
  Weights weights = {
      {"q_weight", doubled(q)},
      {"k_weight", doubled(k)},
      {"v_weight", doubled(v)},
      {"out_weight", at::eye(4, at::kDouble)}};
  weights.merge(more);
  set(*m, weights);
  const at::Tensor y = forward(*m, at::eye(4, at::kDouble).unsqueeze(0)).squeeze(0);
  EXPECT_TRUE(at::equal(y.narrow(1, 0, 2), y.narrow(1, 2, 2)));
  return y.narrow(1, 0, 2);
}

void expect_rows(const at::Tensor& o, std::vector<double> last, double within = 2e-9) {
  const at::Tensor expected = rows(std::move(last));
  const at::Tensor got = o.narrow(0, o.size(0) - expected.size(0), expected.size(0));
  EXPECT_LT((got - expected).abs().max().item<double>(), within) << got;
}

const std::string plain = "position.kind=none,";
const Weights decay = {{"decay_weight", at::tensor({.1, -.2, .3, 0.}, at::kDouble)}};

// arXiv:2507.23632 and 2602.17363: o_2, o_3, o_4.
TEST(MixerPapers, TaylorWorkedExample) {
  expect_rows(
      worked("softmax", plain),
      {.862786044, -1.382537200, .341956825, .239829484, 1.110043324, .042015783}
  );
  expect_rows(
      worked("taylor", plain + "order=0"), {.75, -.875, .166666667, .416666667, .625, .5625}
  );
  expect_rows(
      worked("taylor", plain + "order=2"),
      {.857858444, -1.360362997, .329141602, .259257128, 1.025681394, .130074458}
  );
  expect_rows(
      worked("taylor", plain + "order=4"),
      {.862648642, -1.381918887, .341718977, .240216038, 1.102889006, .050231836}
  );
  expect_rows(
      worked("taylor", plain + "order=8"),
      {.862786027, -1.382537123, .341956816, .239829499, 1.110036505, .042024659}
  );
  expect_rows(
      worked("softmax", plain + "norm=none"),
      {2.634521145, -4.221583682, 1.067489481, .748677706, 8.506258609, .321966818}
  );
  expect_rows(
      worked("softmax", plain + "norm=l2"),
      {.529425315, -.848356550, .818714513, .574200790, .999284436, .037823495}
  );
  expect_rows(
      worked("taylor", plain + "norm=none"),
      {2.531325531, -4.014090681, 1.023494148, .806182360, 7.625731641, .967077025}
  );
  expect_rows(
      worked("taylor", plain + "order=1,norm=l2"),
      {.546159755, -.837681038, .935778665, .352587990, .971224562, -.238165594}
  );
  expect_rows(
      worked("taylor", plain + "decay=softplus", decay),
      {.790292483, -1.056316174, -.025856369, 1.069197693, 1.483382056, .853080369}
  );
  expect_rows(
      worked("two_mamba", "conv=0", decay),
      {.958793943, -1.814572744, -.420070421, 1.862121239, .642408881, 1.640283731}
  );
  expect_rows(
      worked("two_mamba", "conv=0,kernel=exp", decay),
      {0.796228634, -1.083028851, -.002396685, 1.026683374, 1.592024729, .771249731}
  );
  EXPECT_EQ(
      worked("two_mamba", "conv=0", decay).select(0, 0).abs().max().item<double>(), 0
  );  // q_1.k_1 = 0
}

TEST(MixerPapers, TaylorConvergesToSoftmax) {
  const at::Tensor exact = worked("softmax", plain);
  double before = std::numeric_limits<double>::infinity();
  for (const int N : {2, 4, 6, 8, 10}) {
    const double error =
        (worked("taylor", plain + fmt::format("order={}", N)) - exact).abs().max().item<double>();
    EXPECT_LT(error, before) << N;
    before = error;
  }
  EXPECT_LT(before, 2e-7);
}

// A positive factor before a scale-free norm does nothing; after it, it does. Void settings are
// said to be so.
TEST(MixerPapers, GateBeforeScaleFreeNormIsVoid) {
  const Weights gate = {{"output_gate_weight", at::tensor({1., -2., 3., .5}, at::kDouble)}};
  for (const char* norm : {"norm=l2", "norm=unit_d"}) {
    const at::Tensor without = worked("softmax", plain + norm);
    EXPECT_LT(
        relative_error(worked("softmax", plain + norm + ",output_gate=pre", gate), without), 1e-12
    );
    EXPECT_GT(
        relative_error(worked("softmax", plain + norm + ",output_gate=post", gate), without), 1e-2
    );
  }
  EXPECT_EQ(make_mixer("softmax", 16, "norm=rms,output_gate=pre")->voids().size(), 1u);
  EXPECT_EQ(make_mixer("softmax", 16, "norm=rms,output_gate=post")->voids().size(), 0u);
  EXPECT_EQ(make_mixer("softmax", 16, "centre=mean")->voids().size(), 1u);
  EXPECT_EQ(make_mixer("taylor", 16, "centre=mean")->voids().size(), 0u);
}

// One vector taken from every key moves no softmax row, but moves a truncated series.
TEST(MixerPapers, KeyCentring) {
  const at::Tensor x = at::randn({2, 12, 16}, at::kDouble) * 3 + 1;
  for (const char* name : {"softmax", "taylor"}) {
    const auto m = mixer(name, 16, "centre=mean");
    const at::Tensor before = forward(*m, x);
    m->calibrate(x);
    EXPECT_GT(m->buffers()[0].abs().max().item<double>(), 1e-3);
    const double moved = relative_error(forward(*m, x), before);
    EXPECT_EQ(moved < 1e-12, std::string(name) == "softmax") << moved;
  }
}

// arXiv:2405.15731: outputs and transitions.
TEST(MixerPapers, DynamicalSystemsWorkedExample) {
  expect_rows(
      worked("linear", ""),
      {.806370590, -1.128667653, .508937398, -.334227750, 1.003659102, .146990109}
  );
  const Weights nu = {{"eta_weight", at::tensor({.1, -.2, .3, 0.}, at::kDouble)}};
  expect_rows(
      worked("norm_attention", "normaliser=exp", nu),
      {0, 0, 1.221402758, -2.824493878, .555613666, -.902872206, 6.325, -5.6}
  );
  expect_rows(
      worked("norm_attention", "normaliser=softplus", nu),
      {1.671852560, -3.866159045, .877854973, -1.426514331, 9.125046134, -8.079092229},
      5e-9
  );
  expect_rows(
      worked("norm_attention", "normaliser=sigmoid", nu),
      {2.221402758, -5.136993878, 1.305613666, -2.121622206, 12.65, -11.2}
  );
  const auto transitions =
      [&](std::string_view name, const std::string& options, const Weights& more) {
        const auto m = mixer(name, 4, "heads=2," + options);
        set(*m, {{"q_weight", doubled(q)}, {"k_weight", doubled(k)}});
        set(*m, more);
        const c10::NoGradGuard no_graph;
        return m->dsf(at::eye(4, at::kDouble).unsqueeze(0))
            .Lambda.select(2, 0)
            .flatten()
            .narrow(0, 1, 3);
      };
  const auto expect = [](const at::Tensor& got, std::vector<double> numbers) {
    EXPECT_LT((got - at::tensor(numbers, at::kDouble)).abs().max().item<double>(), 2e-9) << got;
  };
  expect(transitions("softmax", plain, {}), {.327492549, .978151779, .407374345});
  expect(transitions("linear", "", {}), {.370441849, 1.278160504, .349406995});
  expect(
      transitions("norm_attention", "normaliser=exp", nu), {1.349858808, .606530660, 1.349858808}
  );
  expect(
      transitions("norm_attention", "normaliser=sigmoid", nu),
      {1.166190215, .783657180, 1.148885034}
  );
}

// The S6 transition at s = 1 is the plain one with the forget gate's logits negated.
TEST(MixerPapers, ReversedQlstm) {
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

// arXiv:2411.10741: with LayerNorm, and C2: any softmax row is met by decays alone.
TEST(MixerPapers, MetaLaWorkedExample) {
  const at::Tensor logits = rows({1, .5, -.5, 1, .25, -1.25, 1.5, .75});
  const auto m = mixer("metala", 4, "heads=2,expand_k=1,conv=0");
  set(*m,
      {{"q_weight", doubled(q)},
       {"decay_weight", doubled(logits)},
       {"v_weight", doubled(v)},
       {"gate_weight", at::zeros(1)},
       {"gate_bias", at::full(1, 1.2784645427610738, at::kDouble)},  // SiLU = 1
       {"augment", at::tensor({.5, -1.}, at::kDouble)},
       {"out_weight", at::eye(4, at::kDouble)}});
  const at::Tensor x = at::eye(4, at::kDouble).unsqueeze(0);
  expect_rows(
      forward(*m, x).squeeze(0).narrow(1, 0, 2),
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
  expect_rows(
      m->core(x).o.squeeze(0).select(1, 0),
      {-.013789243,
       .027578487,
       .040556782,
       -.024623876,
       -.025033251,
       .033025395,
       -.000928423,
       .267886403}
  );
}

TEST(MixerPapers, DecayAloneMeetsAnySoftmaxRow) {
  const at::Tensor p = at::tensor({.1, .4, .2, .3}, at::kDouble), P = p.cumsum(0);
  const at::Tensor a = 1 - p / P;  // a_s = P_{s-1} / P_s
  Inputs in;
  in.g = a.log().view({1, 4, 1, 1});
  in.k = (1 - a).view({1, 4, 1, 1});
  in.q = at::ones_like(in.k);
  in.v = at::eye(4, at::kDouble).view({1, 4, 1, 4});
  const at::Tensor o = run(find_op("linear"), in, {}, {}).o;
  EXPECT_LT((o.select(1, 3).flatten() - p).abs().max().item<double>(), 1e-15);
}

// Self-augmentation at its start is a constant that LayerNorm takes away and RMSNorm does not.
TEST(MixerPapers, SelfAugmentationIsVoidAtTheStart) {
  const at::Tensor x = at::randn({1, 7, 16}, at::kDouble);
  for (const char* norm : {"layer", "rms"}) {
    const auto with = mixer("metala", 16, fmt::format("norm={}", norm));
    const auto without = mixer("metala", 16, fmt::format("norm={},augment=false", norm));
    const double difference = relative_error(forward(*with, x), forward(*without, x));
    EXPECT_EQ(difference < 1e-10, std::string(norm) == "layer") << difference;
  }
}

// arXiv:2412.06590.
TEST(MixerPapers, InlineWorkedExample) {
  const Weights zero = {{"q_bias", at::zeros(1)}};
  expect_rows(
      worked("inline", "residual=0,causal=false", zero),
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
      worked("inline", "residual=0", zero),
      {1, -2, .871533978, -1.421902901, .360629985, .172371095, 1.527666000, -.621351431}
  );
}

// Two queries that linear attention cannot tell apart: one reading for both. InLine and softmax
// can.
TEST(MixerPapers, InlineIsInjectiveLinearAttentionIsNot) {
  const at::Tensor pair =
      rows({.5, -1, 1.25, -.5945348918918356, .5, -1, 1.25, -.5945348918918356});
  const auto last_rows = [&](std::string_view name, const std::string& options) {
    // Tokens 1 and 2 carry the two queries; both directions, so that both read the same four keys.
    const auto m = mixer(name, 4, "heads=2," + options);
    set(*m, {{"q_weight", doubled(pair)}, {"k_weight", doubled(k)}});
    const c10::NoGradGuard no_graph;
    const Core core = m->core(at::eye(4, at::kDouble).unsqueeze(0));
    Core both = core;
    both.options.causal = false;
    return map_of(both).select(0, 0).select(0, 0);  // (T,T)
  };
  const at::Tensor confused = last_rows("linear", "");
  EXPECT_LT((confused[0] - confused[1]).abs().max().item<double>(), 1e-9);
  EXPECT_LT(
      (confused[0] - at::tensor({.306943788, .142206803, .171143634, .379705775}, at::kDouble))
          .abs()
          .max()
          .item<double>(),
      2e-9
  );
  const at::Tensor softmax = last_rows("softmax", plain),
                   inlined = last_rows("inline", "residual=0,causal=false");
  EXPECT_LT(
      (softmax[0] - at::tensor({.197741028, .081701696, .522816248, .197741028}, at::kDouble))
          .abs()
          .max()
          .item<double>(),
      2e-9
  );
  EXPECT_LT(
      (softmax[1] - at::tensor({.270910668, .058309445, .291364749, .379415137}, at::kDouble))
          .abs()
          .max()
          .item<double>(),
      2e-9
  );
  EXPECT_LT(
      (inlined[0] - at::tensor({.244475728, .023504859, .487543684, .244475728}, at::kDouble))
          .abs()
          .max()
          .item<double>(),
      2e-9
  );
  EXPECT_LT(
      (inlined[1] - at::tensor({.320399777, -.063606484, .338596474, .404610233}, at::kDouble))
          .abs()
          .max()
          .item<double>(),
      2e-9
  );
}

// arXiv:2512.08061: the worked features, and a kernel that is positive definite.
TEST(MixerPapers, LunaWorkedFeatures) {
  const auto m =
      mixer("luna", 4, "heads=2,map.projections=2,map.channels=2,map.hidden=2,map.shared=true");
  set(*m,
      {{"map_w", rows({1, 0, 1, -1})},
       {"map_b", at::tensor({0., .5}, at::kDouble)},
       {"map_fc1", rows({1, -1})},
       {"map_bias1", rows({0, 1})},
       {"map_fc2", rows({1, .5, -1, 2})},
       {"map_bias2", at::tensor({.1, -.5}, at::kDouble)},
       {"q_weight", doubled(rows({0, 1, 1, 0, 1, 1, 0, 0}))},
       {"k_weight", doubled(rows({1, 0, 0, 1, -1, 1, 0, 0}))},
       {"v_weight", doubled(rows({1, 0, 0, 1, 2, -1, 0, 0}))},
       {"out_weight", at::eye(4, at::kDouble)}});
  const at::Tensor o =
      forward(*m, at::eye(4, at::kDouble).narrow(0, 0, 3).unsqueeze(0)).squeeze(0).narrow(1, 0, 2);
  expect_rows(o, {1, 0, 0.651122625, 0.348877375, 1.154516640, -0.154516640});
}

TEST(MixerPapers, LunaKernelIsPositiveDefinite) {
  const auto m = mixer("luna", 16, "");
  const c10::NoGradGuard no_graph;
  const auto core = m->core(at::randn({1, 30, 16}, at::kDouble) * 3);
  const at::Tensor phi = core.in.k.squeeze(0).select(1, 0);
  const at::Tensor gram = at::matmul(phi, phi.t());
  EXPECT_GE(at::linalg_eigvalsh(gram).min().item<double>(), -1e-12);
  EXPECT_GE(gram.min().item<double>(), 0);
  const at::Tensor map = m->map(at::randn({1, 30, 16}, at::kDouble));
  EXPECT_GE(map.min().item<double>(), 0);
  EXPECT_LT((map.sum(-1) - 1).abs().max().item<double>(), 1e-12);
}

// arXiv:2511.17388: increments of 1 are rope, of 0 no rotation; the rotation keeps lengths.
TEST(MixerPapers, SelectiveRopeReducesToRopeAndToNone) {
  const at::Tensor x = at::randn({2, 11, 16}, at::kDouble) * 3;
  const std::string selective = "position.kind=selective_rope,position.gate=none";
  for (const auto& [name, options] :
       {std::pair{"softmax", ""},
        {"linear", "feature=identity,norm=none,"},
        {"gla", "tie_pair_decay=true,heads=2,"},
        {"gated_deltanet", ""}}) {
    const auto with = [&](const std::string& position) {
      const auto m = mixer(name, 16, options + position);
      const auto plain_one = mixer(name, 16, std::string(options) + "position.kind=none");
      const c10::NoGradGuard no_graph;
      auto from = plain_one->named_parameters();
      for (auto& parameter : m->named_parameters()) {
        if (const at::Tensor* value = from.find(parameter.key())) parameter.value().copy_(*value);
        if (parameter.key() == "angle_length") parameter.value().zero_();
      }
      return forward(*m, x);
    };
    EXPECT_LT(
        relative_error(with(selective + ",position.bias=true"), with("position.kind=rope")), 1e-11
    ) << name;
    EXPECT_LT(relative_error(with(selective), with("position.kind=none")), 1e-12) << name;
    EXPECT_GT(relative_error(with("position.kind=rope"), with("position.kind=none")), 1e-4) << name;
  }
  const at::Tensor y = at::randn({1, 5, 2, 6}, at::kDouble);
  EXPECT_LT(
      relative_error(rotated(y, at::randn({1, 5, 2, 3}, at::kDouble)).norm(2, -1), y.norm(2, -1)),
      1e-14
  );
  const at::Tensor rfa = rfa_temperatures(4, 0.995);
  EXPECT_LT(
      (rfa - at::tensor({0., .00450721683, .0134407551, 1.}, at::kDouble))
          .abs()
          .max()
          .item<double>(),
      1e-10
  );
}

// One rotation of pi per one-bit tells parity: o_t = (x_1 + .. + x_t) mod 2, all strings of length
// 10.
TEST(MixerPapers, RotationTracksParity) {
  at::Tensor bits = at::arange(1024)
                        .unsqueeze(1)
                        .bitwise_right_shift(at::arange(10))
                        .remainder(2)
                        .to(at::kDouble);
  const at::Tensor angle = (std::numbers::pi * bits).cumsum(1).view({1024, 10, 1, 1});
  Inputs in;
  in.q = rotated(at::tensor({1., 0.}, at::kDouble).expand({1024, 10, 1, 2}), angle);
  in.k = in.q;
  in.v = bits.view({1024, 10, 1, 1});
  const at::Tensor o = run(find_op("linear"), in, {}, {}).o.view({1024, 10});
  EXPECT_LT((o - bits.cumsum(1).remainder(2)).abs().max().item<double>(), 1e-12);
}

// arXiv:2509.24552: a window as long as the sequence is softmax, of one token it is v; far tokens
// have no effect.
TEST(MixerPapers, WindowLimits) {
  const at::Tensor x = at::randn({2, 11, 16}, at::kDouble);
  const auto full = mixer("softmax", 16, ""), wide = mixer("window", 16, "window=11"),
             one = mixer("window", 16, "window=1");
  EXPECT_LT(relative_error(forward(*wide, x), forward(*full, x)), 1e-12);
  const c10::NoGradGuard no_graph;
  const at::Tensor map = one->map(x);
  EXPECT_LT((map - at::eye(11, at::kDouble)).abs().max().item<double>(), 1e-14);
  State state;
  Context context;
  context.window = 11;
  EXPECT_TRUE(at::equal(one->forward(x, state, context), forward(*wide, x)));
}

// Eigenvalues of DeltaNet's transition: in [0,1], or down to -1 where beta reaches 2.
TEST(MixerPapers, DeltaNetEigenvalues) {
  const at::Tensor x = at::randn({1, 20, 16}, at::kDouble) * 100;
  for (const bool negative : {false, true}) {
    const auto m = mixer("deltanet", 16, fmt::format("negative={}", negative));
    const c10::NoGradGuard no_graph;
    const at::Tensor e = at::linalg_eigvalsh(m->dsf(x).Lambda);
    EXPECT_LE(e.max().item<double>(), 1 + 1e-12);
    EXPECT_EQ(e.min().item<double>() < -0.5, negative);
  }
}

int64_t count(std::string_view name, const std::string& options, int64_t D) {
  int64_t n = 0;
  for (const at::Tensor& p : make_mixer(name, D, options)->parameters()) n += p.numel();
  return n;
}

TEST(MixerPapers, ParameterCounts) {
  const int64_t D = 64;
  EXPECT_EQ(count("softmax", "", D), 4 * D * D);
  EXPECT_EQ(count("metala", "", D), 4 * D * D + 4 * D + D + D / 2);
  EXPECT_EQ(count("luna", "heads=1", D), 4 * D * D + 1812);  // M 16, R 4, E 64, K 64
  EXPECT_EQ(count("luna", "heads=1,map.shared=true", D), 4 * D * D + 1428);
  EXPECT_EQ(count("retnet", "", D), 8 * D * D);
  EXPECT_EQ(count("mlstm", "", D), 4 * D * D + 2 * (4 * D + 4) + D);
  EXPECT_EQ(count("inline", "heads=2,residual=9", D), 4 * D * D + 4 * D + 10 * D * 32 + 10 * D);
}

// State bytes in fp32, measured, at D = 64: constant in T but for softmax.
TEST(MixerPapers, StateBytes) {
  const auto bytes = [](std::string_view name, const std::string& options, int64_t T) {
    const auto m = make_mixer(name, 64, options);
    State state;
    const c10::NoGradGuard no_graph;
    m->forward(at::randn({1, T, 64}), state);
    return state.bytes();
  };
  EXPECT_EQ(bytes("metala", "", 40), 4 * (64 * 64 / (2 * 4) + 3 * 64));
  EXPECT_EQ(bytes("mlstm", "", 40), 4 * 4 * (8 * 16 + 8 + 1));
  EXPECT_EQ(bytes("retnet", "position.kind=none", 40), 4 * 4 * 16 * 32);
  EXPECT_EQ(bytes("softmax", "position.kind=none", 40), 4 * 2 * 40 * 64 + 4 * 8);
  for (const MixerType& type : mixers()) {
    if (type.name == "softmax" || type.name == "window" || type.name == "mamba2") continue;
    EXPECT_EQ(bytes(type.name, "", 5), bytes(type.name, "", 50)) << type.name;
  }
}

}  // namespace
}  // namespace horner
