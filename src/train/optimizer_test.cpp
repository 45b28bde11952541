#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "train/schedule.h"

namespace horner {
namespace {

struct Two : torch::nn::Module {
  Two() {
    matrix = register_parameter("a_weight", at::arange(6, at::kFloat).view({2, 3}) / 5 - 0.4);
    vector = register_parameter("norm_weight", at::ones({3}));
    rates = register_parameter("A_log", at::ones({2, 2}));
  }
  at::Tensor matrix, vector, rates;
};

// The equations of the header in double, for one number.
struct ByHand {
  double w, m = 0, s = 0;
  void step(double g, const OptimOptions& o, double lr, double decay, int t) {
    m = o.beta1 * m + (1 - o.beta1) * g;
    s = o.beta2 * s + (1 - o.beta2) * g * g;
    const double mh = m / (1 - std::pow(o.beta1, t)), sh = s / (1 - std::pow(o.beta2, t));
    w = (1 - lr * decay) * w - lr * mh / (std::sqrt(sh) + o.eps);
  }
};

TEST(Optimizer, IsAdamWWithClippingAndDecayOfMatricesAlone) {
  Two model;
  OptimOptions o;
  o.weight_decay = 0.3;
  o.clip = 1.5;
  Optimizer optimizer(model, o);
  ByHand matrix{model.matrix[1][2].item<double>()}, vector{1}, rates{1};
  for (int t = 1; t <= 5; ++t) {
    optimizer.zero_gradients();
    const double size = t == 3 ? 10 : 0.1;  // of which the third is clipped
    ((model.matrix * size * t).sum() + (model.vector * size).sum() + (model.rates * size).sum())
        .backward();
    const double norm = size * std::sqrt(6.0 * t * t + 3 + 4), lr = 0.01 * t;
    const double shrink = std::min(1.0, o.clip / norm);
    EXPECT_NEAR(optimizer.step(lr).item<double>(), norm, 1e-5 * norm);
    matrix.step(size * t * shrink, o, lr, 0.3, t);
    vector.step(size * shrink, o, lr, 0, t);
    rates.step(size * shrink, o, lr, 0, t);
    EXPECT_NEAR(model.matrix[1][2].item<double>(), matrix.w, 2e-6);
    EXPECT_NEAR(model.vector[1].item<double>(), vector.w, 2e-6);
    EXPECT_NEAR(model.rates[1][0].item<double>(), rates.w, 2e-6);
  }
}

TEST(Optimizer, AParameterHasAShareOfTheRate) {
  Two model;
  OptimOptions o;
  o.weight_decay = 0;
  const at::Tensor before = model.rates.detach().clone();
  Optimizer optimizer(model, o, {}, {}, [](const std::string& name) {
    return name == "a_weight" ? 1.0 : name == "norm_weight" ? 0.1 : 0.0;
  });
  const at::Tensor matrix = model.matrix.detach().clone();
  optimizer.zero_gradients();
  ((model.matrix * 2).sum() + model.vector.sum() + model.rates.sum()).backward();
  optimizer.step(0.01);  // the first step of Adam goes lr in the direction of the gradient's sign
  EXPECT_NEAR((model.matrix - matrix + 0.01).abs().max().item<double>(), 0, 1e-6);
  EXPECT_NEAR((model.vector - 1 + 0.001).abs().max().item<double>(), 0, 1e-6);
  EXPECT_TRUE(at::equal(model.rates, before));
  EXPECT_FALSE(model.rates.requires_grad());
  EXPECT_EQ(optimizer.groups().size(), 2u);
}

// Whatever the number of processes, each number of each parameter has one owner, and nobody holds more than his share.
TEST(Optimizer, EachNumberHasOneOwner) {
  OptimOptions o;
  o.ema = 0.9;
  for (const Shard shard : {Shard::optimizer, Shard::full}) {
    for (const int64_t world : {1, 2, 3, 4}) {
      std::map<std::string, at::Tensor> owners;
      for (int64_t rank = 0; rank < world; ++rank) {
        Two model;
        const auto alone = [](const at::Tensor&, const at::Tensor&) {};
        Optimizer optimizer(model, o, {shard, rank, world, {}, alone});
        int64_t numbers = 0;  // of a vector, padded
        for (const Optimizer::Group& group : optimizer.groups()) numbers += group.length;
        const int64_t whole = shard == Shard::full ? 0 : 2, own = 5 - whole;
        EXPECT_EQ(optimizer.bytes(), 4 * (numbers * whole + numbers / world * own));
        const Two same;
        for (const Optimizer::Owned& part : optimizer.owned(rank)) {
          at::Tensor& seen = owners[part.piece->name];
          const at::Tensor all = same.named_parameters()[part.piece->name].detach().flatten();
          if (!seen.defined()) seen = at::zeros_like(all);
          seen.narrow(0, part.begin, part.end - part.begin).add_(1);
          EXPECT_TRUE(at::equal(
              part.of(part.stretch->weights), all.narrow(0, part.begin, part.end - part.begin)
          ));
        }
      }
      EXPECT_EQ(owners.size(), 3u);
      for (const auto& [name, count] : owners) EXPECT_TRUE((count == 1).all().item<bool>()) << name;
    }
  }
}

TEST(Optimizer, AGradientThatIsNotFiniteChangesNothing) {
  Two model;
  Optimizer optimizer(model, {});
  (model.matrix * 3).sum().backward();
  EXPECT_EQ(optimizer.worst_gradient(), "largest (7.35) in group matrices: a_weight");
  const at::Tensor before = model.matrix.detach().clone();
  optimizer.zero_gradients();
  (model.vector * std::nan("")).sum().backward();
  EXPECT_TRUE(std::isnan(optimizer.step(0.1).item<double>()));
  EXPECT_TRUE(at::equal(model.matrix, before));
  EXPECT_EQ(optimizer.worst_gradient(), "not finite in group vectors: norm_weight");
}

TEST(Optimizer, AveragesWeightsAndGivesThemBack) {
  Two model;
  OptimOptions o;
  o.ema = 0.9;
  Optimizer optimizer(model, o);
  double average = model.matrix[0][0].item<double>();
  for (int t = 0; t < 4; ++t) {
    optimizer.zero_gradients();
    model.matrix.sum().backward();
    optimizer.step(0.1);
    average = 0.9 * average + 0.1 * model.matrix[0][0].item<double>();
  }
  const double last = model.matrix[0][0].item<double>();
  {
    const Optimizer::Averaged averaged(optimizer);
    EXPECT_NEAR(model.matrix[0][0].item<double>(), average, 1e-6);
  }
  EXPECT_EQ(model.matrix[0][0].item<double>(), last);
}

TEST(Schedule, Values) {
  ScheduleOptions o;
  o.steps = 110;
  o.warmup = 10;
  o.final_lr = 0.1;
  const auto at = [&](const char* kind, int64_t step) {
    o.kind = kind;
    return schedule_share(o, step);
  };
  for (const char* kind : {"constant", "linear", "cosine", "wsd"}) {
    EXPECT_DOUBLE_EQ(at(kind, 0), 0.1) << kind;
    EXPECT_DOUBLE_EQ(at(kind, 9), 1) << kind;
    EXPECT_DOUBLE_EQ(at(kind, 10), 1) << kind;
  }
  EXPECT_DOUBLE_EQ(at("constant", 109), 1);
  EXPECT_DOUBLE_EQ(at("linear", 60), 0.55);
  EXPECT_DOUBLE_EQ(at("linear", 110), 0.1);
  EXPECT_NEAR(at("cosine", 60), 0.55, 1e-12);
  EXPECT_NEAR(at("cosine", 35), 0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_DOUBLE_EQ(at("wsd", 88), 1);  // the last fifth: 22 steps
  EXPECT_DOUBLE_EQ(at("wsd", 99), 0.55);
  EXPECT_DOUBLE_EQ(at("wsd", 110), 0.1);
}

}  // namespace
}  // namespace horner
