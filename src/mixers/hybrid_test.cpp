// What a conversion needs of `hybrid` and `centres`: softmax's weights fit, no token counts twice, the closed-form start helps.
#include "mixers/hybrid.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "mixers/start.h"
#include "ops/contract.h"

namespace horner {
namespace {

constexpr int64_t kWidth = 16;
const std::string kShape = "heads=4,groups=2,qkv_bias=true,qk_norm=true,position.base=500";

std::shared_ptr<Mixer> make(const std::string& name, const std::string& settings) {
  at::manual_seed(3);
  const MixerType& type = find_mixer(name);
  auto mixer = type.make(kWidth, type.parse(settings));
  mixer->to(at::kDouble);
  return mixer;
}

// A softmax layer whose scores are not small.
std::shared_ptr<Mixer> teacher() {
  const c10::NoGradGuard no_graph;
  auto mixer = make("softmax", kShape);
  for (auto& p : mixer->named_parameters()) p.value().normal_(0, 0.5);
  return mixer;
}

void copy_by_name(Mixer& from, Mixer& to) {
  const c10::NoGradGuard no_graph;
  auto own = to.named_parameters();
  for (auto& p : from.named_parameters()) {
    ASSERT_TRUE(own.contains(p.key())) << p.key();
    ASSERT_EQ(own[p.key()].sizes(), p.value().sizes()) << p.key();
    own[p.key()].copy_(p.value());
  }
}

at::Tensor forward(Mixer& mixer, const at::Tensor& x) {
  const c10::NoGradGuard no_graph;
  State state;
  return mixer.forward(x, state);
}

at::Tensor tokens(int64_t T) {
  at::manual_seed(5);
  return at::randn({2, T, kWidth}, at::kDouble);
}

// Inside the window there is no far token, so every kind is softmax itself.
TEST(Hybrid, IsSoftmaxInsideItsWindow) {
  const auto softmax = teacher();
  const at::Tensor x = tokens(20);
  for (const char* far :
       {"none", "linear", "taylor", "centres", "gla", "mlstm", "gated_deltanet", "kda"}) {
    const auto mixer = make("hybrid", kShape + ",window=16,sinks=4,far=" + far);
    copy_by_name(*softmax, *mixer);
    EXPECT_LT(relative_error(forward(*mixer, x), forward(*softmax, x)), 1e-12) << far;
  }
}

// With a centre at each key the far weights are exact. So the sum is softmax's if and only if each token counts once.
TEST(Hybrid, CountsEachTokenOnce) {
  const auto softmax = teacher();
  const at::Tensor x = tokens(17).narrow(0, 0, 1);
  for (const char* window : {"window=1,sinks=0", "window=4,sinks=3", "window=6,sinks=0"}) {
    for (const char* order : {"0", "2"}) {
      const auto mixer =
          make("hybrid", fmt::format("{},{},far=centres,count=17,order={}", kShape, window, order));
      copy_by_name(*softmax, *mixer);
      const c10::NoGradGuard no_graph;
      mixer->named_parameters()["centres"].copy_(softmax->core(x).in.k[0].transpose(0, 1));
      EXPECT_LT(relative_error(forward(*mixer, x), forward(*softmax, x)), 1e-12) << window;
    }
  }
}

TEST(Hybrid, TaylorOfHighOrderIsSoftmax) {
  const auto softmax = teacher();
  const at::Tensor x = tokens(17);
  const auto mixer = make("hybrid", kShape + ",window=3,sinks=2,far=taylor,order=16");
  copy_by_name(*softmax, *mixer);
  mixer->start(measure(*softmax, x, 3, 2));
  {
    const c10::NoGradGuard no_graph;
    EXPECT_LT(mixer->named_parameters()["far_bias"].abs().max().item<double>(), 1e-3);
    mixer->named_parameters()["far_bias"].zero_();
  }
  EXPECT_LT(relative_error(forward(*mixer, x), forward(*softmax, x)), 1e-4);
}

double distance(Mixer& mixer, Mixer& softmax, const at::Tensor& x) {
  return (forward(mixer, x) - forward(softmax, x)).norm().item<double>();
}

// Without training: softmax is nearer than the window alone, on the text that was measured.
TEST(Hybrid, StartsNearerToSoftmaxThanItsWindow) {
  const auto softmax = teacher();
  const at::Tensor x = tokens(200);
  const HeadStatistics s = measure(*softmax, x, 8, 2);
  const std::string shape = kShape + ",window=8,sinks=2,far=";
  const auto alone = make("hybrid", shape + "none");
  copy_by_name(*softmax, *alone);
  const double window = distance(*alone, *softmax, x);
  for (const char* far : {"linear", "taylor", "centres", "gla", "mlstm", "gated_deltanet", "kda"}) {
    const auto mixer = make("hybrid", shape + far), again = make("hybrid", shape + far);
    copy_by_name(*softmax, *mixer);
    copy_by_name(*softmax, *again);
    mixer->start(s);
    again->calibrate(x);  // the same from its own q, k and v
    const auto own = mixer->named_parameters();
    const double error = distance(*mixer, *softmax, x);
    const bool left = own.contains("far_bias");
    EXPECT_LT(error, window * (std::string(far) == "centres" ? 0.5 : left ? 1 : 0.9)) << far;
    EXPECT_NEAR(distance(*again, *softmax, x), error, 1e-9 * window) << far;
  }
}

// Where softmax averages (q = 0), the weight of each token is 1 and the far part is the mean of the far values.
TEST(Hybrid, StartFindsTheMassOfAveragingHeads) {
  const auto softmax = teacher();
  const c10::NoGradGuard no_graph;
  auto theirs = softmax->named_parameters();
  theirs["q_weight"].zero_();
  theirs["q_bias"].zero_();
  at::manual_seed(5);
  const at::Tensor x = at::randn({24, 100, kWidth}, at::kDouble);
  const auto alone = make("hybrid", kShape + ",window=8,sinks=2,far=none");
  copy_by_name(*softmax, *alone);
  for (const char* far : {"gla", "mlstm", "gated_deltanet", "kda"}) {
    const auto mixer = make("hybrid", kShape + ",window=8,sinks=2,far=" + far);
    copy_by_name(*softmax, *mixer);
    mixer->calibrate(x);
    auto own = mixer->named_parameters();
    EXPECT_LT(own["mass_weight"].abs().max().item<double>(), 1e-9) << far;
    EXPECT_LT(own["mass_bias"].abs().max().item<double>(), 1e-9) << far;
    EXPECT_LT(distance(*mixer, *softmax, x), 0.5 * distance(*alone, *softmax, x)) << far;
  }
}

TEST(Hybrid, StartsWithGatesThatDependOnNoToken) {
  const auto softmax = teacher();
  const at::Tensor x = tokens(60);
  const HeadStatistics s = measure(*softmax, x, 8, 2);
  const auto mixer = make("hybrid", kShape + ",window=8,far=gated_deltanet");
  mixer->start(s);
  auto own = mixer->named_parameters();
  const c10::NoGradGuard no_graph;
  EXPECT_EQ(own["decay_weight"].abs().max().item<double>(), 0);
  EXPECT_EQ(own["beta_weight"].abs().max().item<double>(), 0);
  const at::Tensor half = std::log(2.0) / at::softplus(own["decay_bias"]);
  const at::Tensor reach = half / s.distance.view({2, 2}).mean(1);
  const at::Tensor strength = own["beta_bias"].sigmoid();
  const auto is_one_of = [](double x, std::initializer_list<double> list) {
    return std::any_of(list.begin(), list.end(), [&](double y) {
      return std::abs(x / y - 1) < 1e-9;
    });
  };
  for (int64_t g = 0; g < 2; ++g) {
    EXPECT_TRUE(is_one_of(reach[g].item<double>(), {1, 4, 16})) << reach[g];
    EXPECT_TRUE(is_one_of(strength[g].item<double>(), {0.02, 0.1, 0.4})) << strength[g];
  }
}

// The keys get a straight-through gradient, which no difference shows. What else is trained has an exact one.
TEST(Hybrid, GradientsAroundHardCentres) {
  const auto mixer = make("hybrid", kShape + ",window=3,sinks=1,far=centres,count=4");
  const at::Tensor x = tokens(14), w = at::randn_like(x);
  const auto loss = [&] {
    State state;
    return (mixer->forward(x, state) * w).sum();
  };
  auto own = mixer->named_parameters();
  for (const char* name : {"q_weight", "v_weight", "out_weight", "far_bias"}) {
    at::Tensor leaf = own[name];
    const at::Tensor along = at::randn_like(leaf);
    const double exact = (torch::autograd::grad({loss()}, {leaf})[0] * along).sum().item<double>();
    const c10::NoGradGuard no_graph;
    leaf.add_(along, 1e-6);
    const double above = loss().item<double>();
    leaf.sub_(along, 2e-6);
    const double below = loss().item<double>();
    leaf.add_(along, 1e-6);
    EXPECT_NEAR(exact, (above - below) / 2e-6, 1e-6 * std::max(1.0, std::abs(exact))) << name;
  }
}

// The state does not grow, the output stays finite, and a long text goes on from its state.
TEST(Hybrid, LongTexts) {
  const c10::NoGradGuard no_graph;
  const int64_t T = 65536;
  at::manual_seed(1);
  const at::Tensor x = at::randn({1, T, kWidth});
  for (const char* far : {"linear", "centres,count=8", "gated_deltanet"}) {
    const auto mixer = make("hybrid", std::string("heads=2,window=16,sinks=2,far=") + far);
    mixer->to(at::kFloat);
    State whole, pieces;
    const at::Tensor y = mixer->forward(x, whole);
    mixer->forward(x.narrow(1, 0, T - 100), pieces);
    const int64_t before = pieces.bytes();
    const at::Tensor last = mixer->forward(x.narrow(1, T - 100, 100), pieces);
    EXPECT_TRUE(y.isfinite().all().item<bool>()) << far;
    EXPECT_EQ(before, whole.bytes()) << far;
    EXPECT_LT(relative_error(last, y.narrow(1, T - 100, 100)), 1e-4) << far;
  }
}

// Scores of thousands: no weight of an unseen centre reaches the exponent, and the sum does not vanish.
TEST(Hybrid, LargeScoresStayFinite) {
  const c10::NoGradGuard no_graph;
  const at::Tensor x = tokens(30).to(at::kFloat);
  for (const char* far : {"centres,count=5", "linear", "taylor"}) {
    const auto mixer = make("hybrid", std::string("heads=2,window=4,sinks=1,far=") + far);
    mixer->to(at::kFloat);
    for (auto& p : mixer->named_parameters()) {
      if (p.key() == "q_weight" || p.key() == "centres") p.value().mul_(300);
    }
    EXPECT_TRUE(forward(*mixer, x).isfinite().all().item<bool>()) << far;
  }
}

TEST(Centres, CalibrateTakesTheMeansOfItsKeys) {
  const auto softmax = teacher();
  const at::Tensor x = tokens(64);
  const auto mixer = make("centres", kShape + ",count=128");
  copy_by_name(*softmax, *mixer);
  mixer->calibrate(x);  // 128 keys, 128 centres
  EXPECT_LT(relative_error(forward(*mixer, x), forward(*softmax, x)), 1e-3);
}

TEST(Start, KMeansFindsClusters) {
  at::manual_seed(2);
  const at::Tensor truth = 10 * at::randn({5, 3}, at::kDouble);
  const at::Tensor points = truth.repeat({40, 1}) + 0.01 * at::randn({200, 3}, at::kDouble);
  const at::Tensor found = k_means(points, 5);
  EXPECT_LT(at::cdist(truth, found).amin(1).max().item<double>(), 0.02);
  EXPECT_EQ(k_means(points.narrow(0, 0, 3), 8).size(0), 8);  // fewer points than centres
}

// q = 0: all weights of a query are equal.
TEST(Start, MeasuresUniformAttention) {
  const int64_t T = 50;
  Inputs in;
  in.q = at::zeros({1, T, 2, 4}, at::kDouble);
  in.k = at::randn({1, T, 1, 4}, at::kDouble);
  in.v = at::randn({1, T, 1, 3}, at::kDouble);
  const HeadStatistics s = measure(in, 10, 2);
  double distance = 0, entropy = 0, far = 0;
  for (int64_t t = 0; t < T; ++t) {
    distance += double(t) / 2 / double(T);
    entropy += std::log(double(t + 1)) / double(T);
    if (t >= 12) far += double(t + 1 - 12) / double(t + 1) / double(T - 12);
  }
  EXPECT_NEAR(s.distance[1].item<double>(), distance, 1e-9);
  EXPECT_NEAR(s.entropy[0].item<double>(), entropy, 1e-9);
  EXPECT_NEAR(s.far[0].item<double>(), far, 1e-9);
  EXPECT_LT(relative_error(s.o.select(1, T - 1).select(1, 1), in.v.mean(1).select(1, 0)), 1e-12);
  EXPECT_THROW(measure(*make("linear", ""), tokens(4), 2, 1), UsageError);
}

}  // namespace
}  // namespace horner
