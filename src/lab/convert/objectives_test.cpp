#include "lab/convert/objectives.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/device.h"
#include "core/thrown_test.h"
#include "lab/convert/training.h"
#include "model/formats/checkpoint_folder.h"
#include "train/optimizer.h"
#include "train/replay.h"
#include "train/step.h"

namespace horner {
namespace {

const Kept kFirst = {false, true, false};  // layer 1 stays softmax

// A small tied teacher whose scores are not near 0, and its student.
struct Pair {
  std::shared_ptr<Model> teacher, student;
  explicit Pair(const std::string& to = "hybrid:window=4,sinks=1,far=gated_deltanet") {
    ModelOptions o;
    o.pattern = {"softmax:heads=2"};
    o.layers = 3;
    o.D = 16;
    o.vocabulary = 40;
    o.tied = true;
    teacher = make_model(o, 3);
    const c10::NoGradGuard no_graph;
    for (auto& entry : teacher->named_parameters()) {
      if (entry.value().dim() == 2) entry.value().mul_(12);
    }
    teacher->eval();
    o.tied = false;
    student = shared_model(student_options(o, MixerSpec::parse(to), kFirst), {teacher.get()});
  }
};

at::Tensor tokens() {
  at::manual_seed(5);
  return at::randint(40, {2, 24}, at::kLong);
}

std::map<std::string, at::Tensor> copies(const Model& model) {
  std::map<std::string, at::Tensor> all;
  for (const auto& [name, x] : tensors_of(model)) all[name] = x.detach().clone();
  return all;
}

TEST(Objectives, ANewHeadIsTheEmbedding) {
  const Pair p;
  const auto named = p.student->named_parameters();
  EXPECT_TRUE(at::equal(named["head_weight"], named["embedding"]));
}

TEST(Objectives, RatesFollowFromWhereAParameterComesFrom) {
  const Pair p;
  const Rates align = align_rates(*p.teacher, *p.student, kFirst, {0.5, 0.25});
  const Rates distil = distil_rates(*p.teacher, *p.student, {0.5, 0.25, 0.125});
  for (const auto& [name, in_align, in_distil] :
       {std::tuple{"layer_0.mixer.q_weight", 0.25, 0.25},
        {"layer_2.mixer.out_weight", 0.25, 0.25},
        {"layer_1.mixer.q_weight", 0.0, 0.25},
        {"layer_0.mixer.beta_weight", 0.5, 0.5},
        {"layer_0.mixer.far_scale", 0.5, 0.5},
        {"layer_0.mlp_up_weight", 0.0, 0.125},
        {"layer_2.norm_weight", 0.0, 0.125},
        {"embedding", 0.0, 0.125},
        {"head_weight", 0.0, 0.125}}) {
    ASSERT_TRUE(align.contains(name)) << name;
    EXPECT_EQ(align.at(name), in_align) << name;
    EXPECT_EQ(distil.at(name), in_distil) << name;
  }
  EXPECT_EQ(highest(align), 0.5);
}

// align: the mean over replaced layers of relative squared errors, times tokens.
TEST(Objectives, AlignIsTheErrorOfMixersOnTheTeachersInputs) {
  const Pair p;
  const at::Tensor input = tokens();
  double sum = 0;
  each_mixer_input(*p.teacher, input, [&](int64_t l, const at::Tensor& x) {
    if (kFirst[size_t(l)]) return;
    State none, other;
    const at::Tensor o = p.teacher->block(l).mixer().forward(x, none);
    const at::Tensor d = p.student->block(l).mixer().forward(x, other) - o;
    sum += d.square().sum().item<double>() / o.square().sum().item<double>();
  });
  const at::Tensor loss = align_loss(*p.teacher, *p.student, kFirst, input);
  EXPECT_NEAR(loss.item<double>(), sum / 2 * double(input.numel()), 1e-3);
  EXPECT_GT(sum, 1e-3);
  const Pair same("window:window=24");
  EXPECT_LT(align_loss(*same.teacher, *same.student, kFirst, input).item<double>(), 1e-6);
}

TEST(Objectives, DistilIsTheKlOfTheLogits) {
  const Pair p;
  const at::Tensor input = tokens();
  const auto log_p = [&](Model& model) {
    const c10::NoGradGuard no_graph;
    ModelState state;
    return at::log_softmax(model.forward(input, state), -1);
  };
  const at::Tensor kl = at::kl_div(log_p(*p.student), log_p(*p.teacher), at::Reduction::Sum, true);
  const double got = distil_loss(*p.teacher, *p.student, input).item<double>();
  EXPECT_NEAR(got, kl.item<double>(), 1e-4 * got);
  EXPECT_GT(got, 0.1);
}

// Some steps on one batch lower the loss. Every parameter with a rate moves, no other does, and the teacher keeps its bits.
TEST(Objectives, StepsMoveWhatHasARate) {
  const at::Tensor input = tokens();
  for (const bool align : {true, false}) {
    const Pair p;
    const Rates rates = align ? align_rates(*p.teacher, *p.student, kFirst, {})
                              : distil_rates(*p.teacher, *p.student, {});
    const auto teacher = copies(*p.teacher), student = copies(*p.student);
    const Objective objective =
        objective_of(p.student, rates, [&](const at::Tensor& x, const Context& context) {
          return align ? align_loss(*p.teacher, *p.student, kFirst, x)
                       : distil_loss(*p.teacher, *p.student, x, context);
        });
    OptimOptions o;
    o.weight_decay = 0;
    Optimizer optimizer(*p.student, o, {}, {}, objective.rate);
    TargetBatch batch;
    batch.batch.tokens = input;
    std::vector<double> losses;
    for (int i = 0; i < 20; ++i) {
      optimizer.zero_gradients();
      const at::Tensor loss = objective.loss(batch, {}) / double(input.numel());
      loss.backward();
      optimizer.step(highest(rates));
      losses.push_back(loss.item<double>());
      if (i > 0) continue;
      for (const auto& entry :
           p.student->named_parameters()) {  // the first step of Adam is the rate
        const double moved = (entry.value() - student.at(entry.key())).abs().max().item<double>();
        EXPECT_NEAR(moved, rates.at(entry.key()), 0.05 * rates.at(entry.key())) << entry.key();
      }
    }
    EXPECT_LT(losses.back(), 0.9 * losses.front()) << align;
    for (const auto& [name, x] : tensors_of(*p.teacher))
      EXPECT_TRUE(at::equal(x, teacher.at(name))) << name;
  }
}

// On a GPU both steps are recorded as graphs: nothing in them waits for the device.
TEST(ObjectivesCuda, StepsAreRecorded) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const OwnStream stream(at::kCUDA);
  for (const char* to :
       {"hybrid:window=4,sinks=1,far=gated_deltanet",
        "hybrid:window=4,sinks=1,far=mlstm",
        "hybrid:window=4,sinks=1,far=centres,count=4",
        "hybrid:window=4,sinks=1,far=linear"}) {
    for (const bool align : {true, false}) {
      const Pair p(to);
      p.teacher->to(at::kCUDA);
      p.student->to(at::kCUDA);
      const Rates rates = align ? align_rates(*p.teacher, *p.student, kFirst, {})
                                : distil_rates(*p.teacher, *p.student, {});
      const Objective objective =
          objective_of(p.student, rates, [&](const at::Tensor& x, const Context& context) {
            return align ? align_loss(*p.teacher, *p.student, kFirst, x)
                         : distil_loss(*p.teacher, *p.student, x, context);
          });
      TrainOptions o;
      o.model = p.student->options();
      o.train.precision = "bf16";
      o.schedule.steps = 8;
      Optimizer optimizer(*p.student, o.optim, {}, at::Device(at::kCUDA), objective.rate);
      Step step(*p.student, optimizer, o, at::kCUDA, nullptr, nullptr, nullptr, &objective);
      TargetBatch batch;
      batch.batch.tokens = tokens();
      batch.rows = 2, batch.width = 24, batch.count = batch.tokens = 48;
      for (int64_t s = 0; s < 8; ++s) step.run({batch}, 48);
      EXPECT_EQ(step.replayed(), 5)
          << to << (align ? " align: " : " distil: ") << step.not_recorded();
      for (const Step::Numbers& n : step.read(true)) EXPECT_TRUE(std::isfinite(n.loss)) << to;
    }
  }
}

TEST(Objectives, StepsOfTrainingAddUp) {
  ConvertOptions o;
  o.batch = 2;
  o.length = 50;
  o.tokens = 10050;
  EXPECT_EQ(step_counts(o).align, 15);
  EXPECT_EQ(step_counts(o).distil, 85);
  o.align_tokens = 0;
  EXPECT_EQ(step_counts(o).distil, 100);
  o.align_tokens = 20000;
  EXPECT_THROW(step_counts(o), UsageError);
  o.tokens = 99;
  EXPECT_THROW(step_counts(o), UsageError);
}

}  // namespace
}  // namespace horner
