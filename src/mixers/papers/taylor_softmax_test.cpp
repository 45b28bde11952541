// Taylor softmax and 2Mamba (arXiv:2507.23632, arXiv:2602.17363).
#include "core/check.h"
#include "mixers/papers/worked.h"

namespace horner::worked {
namespace {

const Weights decay = {{"decay_weight", vec({.1, -.2, .3, 0.})}};

struct Row {
  const char* name;
  std::string options;
  Weights more;
  std::vector<double> o;  // o_2, o_3, o_4
};

std::vector<Row> worked_example() {
  const Weights no_decay = {{"decay_weight", vec({-1e3})}};  // g = -softplus(-1000) = 0
  return {
      {"softmax",
       plain,
       {},
       {.862786044, -1.382537200, .341956825, .239829484, 1.110043324, .042015783}},
      {"taylor", plain + "order=0", {}, {.75, -.875, .166666667, .416666667, .625, .5625}},
      {"taylor",
       plain + "order=2",
       {},
       {.857858444, -1.360362997, .329141602, .259257128, 1.025681394, .130074458}},
      {"taylor",
       plain + "order=4",
       {},
       {.862648642, -1.381918887, .341718977, .240216038, 1.102889006, .050231836}},
      {"taylor",
       plain + "order=8",
       {},
       {.862786027, -1.382537123, .341956816, .239829499, 1.110036505, .042024659}},
      {"softmax",
       plain + "norm=none",
       {},
       {2.634521145, -4.221583682, 1.067489481, .748677706, 8.506258609, .321966818}},
      {"softmax",
       plain + "norm=l2",
       {},
       {.529425315, -.848356550, .818714513, .574200790, .999284436, .037823495}},
      {"taylor",
       plain + "norm=none",
       {},
       {2.531325531, -4.014090681, 1.023494148, .806182360, 7.625731641, .967077025}},
      {"taylor",
       plain + "order=1,norm=l2",
       {},
       {.546159755, -.837681038, .935778665, .352587990, .971224562, -.238165594}},
      {"taylor",
       plain + "decay=softplus",
       decay,
       {.790292483, -1.056316174, -.025856369, 1.069197693, 1.483382056, .853080369}},
      {"two_mamba",
       "conv=0",
       no_decay,
       {.976470588, -1.894117647, -.016317016, .997668998, .317753458, 1.302021584}},
      {"two_mamba",
       "conv=0",
       decay,
       {.958793943, -1.814572744, -.420070421, 1.862121239, .642408881, 1.640283731}},
      {"two_mamba",
       "conv=0,kernel=exp",
       decay,
       {.796228634, -1.083028851, -.002396685, 1.026683374, 1.592024729, .771249731}},
  };
}

TEST(TaylorSoftmax, WorkedExample) {
  for (const Row& row : worked_example()) {
    SCOPED_TRACE(fmt::format("{} {}", row.name, row.options));
    expect_rows(output(row.name, row.options, row.more), row.o);
  }
  EXPECT_EQ(
      output("two_mamba", "conv=0", decay).select(0, 0).abs().max().item<double>(), 0
  );  // q_1.k_1 = 0
}

// The authors' decay arm: e^{c_t - c_s}, c the running sum of (x W + b) / 1024 one token later, of either sign.
TEST(TaylorSoftmax, ShiftedDecay) {
  const Weights weights = {
      {"decay_weight", 1024 * vec({.1, -.2, .3, 9.})}, {"decay_bias", 1024 * vec({.05})}};
  const at::Tensor c = vec({0, .15, 0, .35});  // 0, .1 + .05, .15 - .2 + .05, 0 + .3 + .05
  const at::Tensor x = at::matmul(q, k.t()) / std::sqrt(2.0) + c.unsqueeze(1) - c.unsqueeze(0);
  const at::Tensor w = x.exp().tril();
  EXPECT_LT(
      furthest(output("softmax", plain + "norm=none,decay=shifted", weights), at::matmul(w, v)),
      1e-12
  );
  EXPECT_LT(
      furthest(
          output("softmax", plain + "decay=shifted", weights), at::matmul(w / w.sum(1, true), v)
      ),
      1e-12
  );
}

TEST(TaylorSoftmax, ConvergesToSoftmax) {
  const at::Tensor exact = output("softmax", plain);
  double before = std::numeric_limits<double>::infinity();
  for (const int N : {2, 4, 6, 8, 10}) {
    const double error = furthest(output("taylor", plain + fmt::format("order={}", N)), exact);
    EXPECT_LT(error, before) << N;
    before = error;
  }
  EXPECT_LT(before, 2e-7);
}

// The length of the output is all that a scale-free norm takes from the denominator.
TEST(TaylorSoftmax, NormReplacesTheDenominator) {
  const at::Tensor sum = output("softmax", plain), none = output("softmax", plain + "norm=none");
  const at::Tensor l2 = output("softmax", plain + "norm=l2");
  EXPECT_LT(furthest(sum / sum.norm(2, 1, true), l2), 1e-15);
  EXPECT_LT(furthest(none / none.norm(2, 1, true), l2), 1e-15);
}

// A positive factor before a scale-free norm does nothing; after it, it does. Void settings are
// said to be so.
TEST(TaylorSoftmax, GateBeforeScaleFreeNormIsVoid) {
  const Weights gate = {{"output_gate_weight", vec({1, -2, 3, .5})}};
  for (const char* norm : {"norm=l2", "norm=unit_d"}) {
    const at::Tensor without = output("softmax", plain + norm);
    EXPECT_LT(
        relative_error(output("softmax", plain + norm + ",output_gate=pre", gate), without), 1e-12
    );
    EXPECT_GT(
        relative_error(output("softmax", plain + norm + ",output_gate=post", gate), without), 1e-2
    );
  }
  EXPECT_EQ(
      make_mixer(MixerSpec::parse("softmax:norm=rms,output_gate=pre"), 16)->voids().size(), 1u
  );
  EXPECT_EQ(
      make_mixer(MixerSpec::parse("softmax:norm=rms,output_gate=post"), 16)->voids().size(), 0u
  );
  EXPECT_EQ(make_mixer(MixerSpec::parse("softmax:centre=mean"), 16)->voids().size(), 1u);
  EXPECT_EQ(make_mixer(MixerSpec::parse("taylor:centre=mean"), 16)->voids().size(), 0u);
}

// The ratio at order 1, (sum v + sum x v)/(t + sum x), is not InLine's mean + q Cov(k,v): equal to
// first order in x alone.
TEST(TaylorSoftmax, FirstOrderRatioIsNotInline) {
  const auto difference = [](double size) {
    const at::Tensor Q = size * q;
    Inputs in;
    in.q = Q.view({1, 4, 1, 2}), in.k = k.view({1, 4, 1, 2}), in.v = v.view({1, 4, 1, 2});
    Options options;
    options.order = 1;
    options.norm = "sum";
    options.odd = true;
    const at::Tensor ratio = run(find_op("power"), in, {}, options).o.view({4, 2});
    const Weights less = {{"q_weight", doubled(Q)}, {"q_bias", at::zeros(1)}};
    return furthest(ratio, output("inline", "residual=0", less));
  };
  EXPECT_GT(difference(1), 0.1);
  EXPECT_NEAR(difference(1e-2) / difference(1e-3), 100, 5);
}

// One vector taken from every key moves no softmax row, but moves a truncated series.
TEST(TaylorSoftmax, KeyCentring) {
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

// Orders 0 .. 2 and the sum's column are smaller than a key/value cache from T = 82, 290 and 1090
// tokens on, for K = V = 16, 32 and 64; order 3 from 515 on, for 16.
TEST(TaylorSoftmax, BreaksEvenWithTheCache) {
  for (const auto& [K, order, T] :
       {std::tuple{16, 2, 82}, {32, 2, 290}, {64, 2, 1090}, {16, 3, 515}}) {
    const int64_t features = order == 2 ? (K + 1) * (K + 2) / 2 : (K + 1) * (K + 2) * (K + 3) / 6;
    const int64_t count = 4;  // the cache also counts its tokens, in 8 bytes: rope's, or its own
    const MixerType& taylor = find_mixer("taylor");
    const std::string norm = order == 2 ? "sum" : "none";
    const Json options =
        taylor.parse(fmt::format("heads=1,order={},norm={},position.kind=none", order, norm));
    int64_t bytes = state_bytes(taylor, K, 1, options);
    if (order == 3) bytes += count * features;  // an odd order has no sum: its column by hand
    EXPECT_EQ(bytes, count * features * (K + 1));
    EXPECT_LT(bytes, count * 2 * K * T);
    EXPECT_GE(bytes, count * 2 * K * (T - 1));
  }
}

}  // namespace
}  // namespace horner::worked
