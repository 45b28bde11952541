#include "model/model.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/check.h"
#include "core/device.h"
#include "model/stochastic_window.h"
#include "ops/attention/cache.h"
#include "ops/contract.h"

namespace horner {
namespace {

ModelOptions small(std::vector<std::string> pattern) {
  ModelOptions o;
  o.pattern = std::move(pattern);
  o.D = 16;
  o.vocabulary = 11;
  return o;
}

std::shared_ptr<Model> make(const ModelOptions& o) {
  at::manual_seed(3);
  auto model = std::make_shared<Model>(o);
  model->to(at::kDouble);
  return model;
}

at::Tensor tokens(int64_t B, int64_t T) {
  at::manual_seed(4);
  return at::randint(11, {B, T}, at::kLong);
}

// Every mixer, alternating with a window: a sequence may be cut anywhere.
TEST(Model, SplitsAnywhereWithEveryMixer) {
  const c10::NoGradGuard no_graph;
  const at::Tensor x = tokens(2, 13);
  for (const MixerType& type : mixers()) {
    ModelOptions o = small({fmt::format("{}:{}", type.name, type.variants[0]), "window:window=3"});
    o.layers = 3;
    o.positions = 16;
    const auto model = make(o);
    ModelState whole, parts;
    const at::Tensor y = model->forward(x, whole);
    std::vector<at::Tensor> got;
    for (const auto& [start, length] : {std::pair<int64_t, int64_t>{0, 5}, {5, 1}, {6, 7}}) {
      got.push_back(model->forward(x.narrow(1, start, length), parts));
    }
    EXPECT_LT(relative_error(at::cat(got, 1), y), 1e-9) << type.name;
    EXPECT_EQ(parts.bytes(), whole.bytes()) << type.name;
  }
}

TEST(Model, PackedBatchIsItsSequences) {
  const c10::NoGradGuard no_graph;
  ModelOptions o = small({"softmax", "mlstm:heads=2", "deltanet"});
  o.layers = 3;
  o.positions = 16;
  const auto model = make(o);
  const at::Tensor x = tokens(1, 12);
  Context packed;
  packed.cu_seqlens = at::tensor({0, 4, 4, 12}, at::kInt);  // one is empty
  ModelState state, a, b;
  const at::Tensor y = model->forward(x, state, packed);
  const at::Tensor alone =
      at::cat({model->forward(x.narrow(1, 0, 4), a), model->forward(x.narrow(1, 4, 8), b)}, 1);
  EXPECT_LT(relative_error(y, alone), 1e-12);
}

// Rows of a state leave, return and swap places, and each sequence goes on as if alone.
TEST(Model, StateGathersAndScatters) {
  const c10::NoGradGuard no_graph;
  const auto model = make(small({"softmax", "gla:heads=2"}));
  const at::Tensor x = tokens(3, 8);
  ModelState all;
  model->forward(x, all);
  const ModelState kept = copy(all);
  const at::Tensor rows = at::tensor({2, 0});
  ModelState two = gather(all, rows);
  const at::Tensor next = tokens(3, 2);
  const at::Tensor y = model->forward(next.index_select(0, rows), two);
  ModelState three = copy(kept);
  const at::Tensor expected = model->forward(next, three).index_select(0, rows);
  EXPECT_LT(relative_error(y, expected), 1e-12);

  ModelState back = copy(kept);
  scatter_in_place(back, rows, two);  // rows 2 and 0 are two tokens ahead of row 1 now
  const at::Tensor last = tokens(3, 1);
  const at::Tensor mixed = model->forward(last, back);
  const at::Tensor ahead = model->forward(last, three), behind = [&] {
    ModelState before = copy(kept);
    return model->forward(last, before);
  }();
  EXPECT_LT(relative_error(mixed.index_select(0, rows), ahead.index_select(0, rows)), 1e-12);
  EXPECT_LT(relative_error(mixed.select(0, 1), behind.select(0, 1)), 1e-12);
}

// A token is written into the cache's room: no layer copies its past.
TEST(Model, AStepCopiesNoCache) {
  const c10::NoGradGuard no_graph;
  const auto model = make(small({"softmax", "window:window=5,sinks=2"}));
  const at::Tensor x = tokens(2, 20);
  ModelState state;
  model->forward(x.narrow(1, 0, 8), state);
  for (int64_t t = 8; t < 20; ++t) {
    const ModelState before = state;
    model->forward(x.narrow(1, t, 1), state);
    for (size_t l = 0; l < state.layers.size(); ++l) {
      size_t caches = 0;
      for (size_t i = 0; i < state.layers[l].parts.size(); ++i) {
        const at::Tensor& part = state.layers[l].parts[i];
        if (!has_room(part)) continue;
        ++caches;
        EXPECT_EQ(part.storage().data(), before.layers[l].parts[i].storage().data());
      }
      EXPECT_EQ(caches, 2u);
    }
  }
}

TEST(Model, GradientsReachEveryParameter) {
  for (const int64_t classes : {0, 5}) {
    ModelOptions o = small({"taylor", "s6:state=4"});
    o.classes = classes;
    o.positions = 20;
    o.norm = "layer";
    const auto model = make(o);
    ModelState state;
    const at::Tensor y = model->forward(tokens(4, 20), state);
    EXPECT_EQ(y.dim(), classes > 0 ? 2 : 3);
    const auto grads = torch::autograd::grad({(y * at::randn_like(y)).sum()}, model->parameters());
    for (const at::Tensor& g : grads) EXPECT_GT(g.abs().max().item<double>(), 0);
  }
}

TEST(Model, TiesAndCaps) {
  ModelOptions o = small({"linear"});
  const size_t untied = make(o)->parameters().size();
  o.tied = true;
  o.logit_cap = 1e-3;
  const auto model = make(o);
  EXPECT_EQ(model->parameters().size(), untied - 1);
  ModelState state;
  const at::Tensor y = model->forward(tokens(2, 5), state);
  EXPECT_LE(y.abs().max().item<double>(), 1e-3);
  EXPECT_GT(y.abs().max().item<double>(), 1e-6);
}

// A stack of L windows of w sees L (w - 1) tokens back and not one more; one recurrent layer sees
// all.
TEST(Model, WindowsReachOnlySoFar) {
  const auto reach = [](std::vector<std::string> pattern) {
    ModelOptions o = small(std::move(pattern));
    o.layers = 3;
    const auto model = make(o);
    at::Tensor x = at::randn({1, 12, 16}, at::kDouble).requires_grad_(true), y = x;
    for (int64_t l = 0; l < 3; ++l) {
      State state;
      y = model->block(l).forward(y, state, {});
    }
    const at::Tensor g = torch::autograd::grad({y.select(1, 11).sum()}, {x})[0];
    return g.abs().amax(-1).squeeze(0);  // (T)
  };
  const at::Tensor window = reach({"window:window=3"});
  EXPECT_EQ(window.narrow(0, 0, 5).max().item<double>(), 0);  // 11 - t > 6
  EXPECT_GT(window.narrow(0, 5, 7).min().item<double>(), 0);
  EXPECT_GT(reach({"window:window=3", "mlstm:heads=2,input_bias=0"}).min().item<double>(), 0);
}

TEST(Model, StochasticWindowSchedule) {
  const StochasticWindow w;
  int64_t shorter = 0;
  for (int64_t step = 0; step < 10000; ++step) {
    const int64_t window = w.at(step, 10000, 7);
    if (step >= 9000) {
      EXPECT_EQ(window, 2048);
    }
    shorter += window == 128 ? 1 : 0;
  }
  EXPECT_NEAR(double(shorter), 4500, 3 * std::sqrt(9000 * 0.25));
  EXPECT_EQ(w.at(123, 10000, 7), StochasticWindow().at(123, 10000, 7));
}

// A tensor starts from (seed, name): mixers of the same seed share all that is not their own.
TEST(Model, SharedWeightsDoNotDependOnTheMixer) {
  const auto weights = [](const std::string& mixer, uint64_t seed, int64_t positions) {
    ModelOptions o = small({mixer});
    o.positions = positions;
    std::map<std::string, at::Tensor> all;
    const auto model = make_model(o, seed);
    for (const auto& entry : model->named_parameters()) all[entry.key()] = entry.value();
    return all;
  };
  const auto softmax = weights("softmax", 7, 0);
  for (const char* mixer : {"linear", "mlstm:heads=2", "mamba2:head=8", "deltanet"}) {
    const auto other = weights(mixer, 7, 20);
    for (const auto& [name, weight] : softmax) {
      if (name.find("mixer") != std::string::npos) continue;
      EXPECT_TRUE(at::equal(weight, other.at(name))) << mixer << " " << name;
    }
    EXPECT_TRUE(at::equal(softmax.at("embedding"), other.at("embedding")));
  }
  const auto linear = weights("linear", 7, 0), next = weights("softmax", 8, 0);
  EXPECT_TRUE(at::equal(softmax.at("layer_1.mixer.q_weight"), linear.at("layer_1.mixer.q_weight")));
  EXPECT_FALSE(at::equal(softmax.at("embedding"), next.at("embedding")));
  EXPECT_FALSE(at::equal(softmax.at("layer_0.mlp_up_weight"), softmax.at("layer_1.mlp_up_weight")));
  EXPECT_NEAR(softmax.at("layer_0.mlp_up_weight").std().item<double>(), 0.02, 0.002);
}

TEST(Model, GivesTheGeneratorBack) {
  at::manual_seed(1);
  const at::Tensor expected = at::rand({3});
  at::manual_seed(1);
  make_model(small({"softmax"}), 9);
  EXPECT_TRUE(at::equal(at::rand({3}), expected));
}

// What stands behind a sequence's length moves no bit of its result, whoever reads.
TEST(Model, PaddingTouchesNothing) {
  const c10::NoGradGuard no_graph;
  for (const char* mixer :
       {"softmax", "softmax:causal=false", "linear:causal=false", "mlstm:heads=2"}) {
    for (const char* pool : {"mean", "last", "tokens"}) {
      ModelOptions o = small({mixer});
      o.positions = 16;
      if (std::string(pool) != "tokens") {
        o.classes = 3;
        o.pool = pool;
      }
      const auto model = make(o);
      Context context;
      context.lengths = at::tensor({4, 9, 1});
      context.keep_state = false;
      const at::Tensor x = tokens(3, 9);
      ModelState none;
      const at::Tensor y = model->forward(x, none, context);
      at::Tensor noise = x.clone();
      noise[0].narrow(0, 4, 5).fill_(10);
      noise[2].narrow(0, 1, 8).fill_(3);
      const at::Tensor z = model->forward(noise, none, context);
      for (const auto& [row, length] : {std::pair<int64_t, int64_t>{0, 4}, {1, 9}, {2, 1}}) {
        ModelState own;
        const at::Tensor alone = model->forward(x.narrow(0, row, 1).narrow(1, 0, length), own)[0];
        const auto part = [&, i = row, n = length](const at::Tensor& all) {
          return o.classes > 0 ? all[i] : all[i].narrow(0, 0, n);
        };
        EXPECT_TRUE(at::equal(part(y), part(z))) << mixer << " " << pool;
        EXPECT_LT(relative_error(part(y), alone), 1e-9) << mixer << " " << pool;
      }
    }
  }
}

TEST(Model, FeaturesInAndNumbersOut) {
  ModelOptions o = small({"linear"});
  o.features = 5;
  o.output = "number";
  o.mlp = "gelu";
  const auto model = make(o);
  ModelState state;
  EXPECT_EQ(model->forward(at::randn({2, 7, 5}), state).sizes(), (std::vector<int64_t>{2, 7, 1}));
  EXPECT_THROW(model->forward(tokens(2, 7), state), UsageError);
}

// Every output of `rebuild` depends on the last position alone, and differs from place to place.
TEST(Model, RebuildsFromTheLastPosition) {
  ModelOptions o = small({"softmax"});
  o.output = "rebuild";
  const auto model = make(o);
  ModelState state;
  const at::Tensor y = model->forward(tokens(2, 6), state);
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{2, 6, 11}));
  EXPECT_FALSE(at::allclose(y.select(1, 0), y.select(1, 1)));
}

TEST(Model, DropsOnlyInTraining) {
  ModelOptions o = small({"softmax"});
  o.dropout = 0.5;
  const auto model = make(o);
  const auto forward = [&] {
    ModelState state;
    return model->forward(tokens(2, 6), state).detach();
  };
  const at::Tensor a = (at::manual_seed(1), forward()), b = (at::manual_seed(2), forward());
  EXPECT_TRUE(at::equal(a, b));  // tokens() seeds the generator itself
  model->eval();
  const at::Tensor still = forward();
  EXPECT_FALSE(at::equal(a, still));
  EXPECT_TRUE(at::equal(still, forward()));
}

TEST(Model, Gpt2StartsTheResidualSmall) {
  ModelOptions o = small({"softmax"});
  const auto plain = make_model(o, 0);
  o.init = "gpt2";
  const auto scaled = make_model(o, 0);
  for (const char* name : {"layer_1.mixer.out_weight", "layer_0.mlp_down_weight"}) {
    const at::Tensor ratio = scaled->named_parameters()[name] / plain->named_parameters()[name];
    EXPECT_NEAR(ratio.min().item<double>(), 0.5, 1e-6);  // 1 / sqrt(2 L), L = 2
    EXPECT_NEAR(ratio.max().item<double>(), 0.5, 1e-6);
  }
}

// Kernels of parts of layers run on a GPU only: every gradient is that of the plain operations in fp64.
TEST(ModelCuda, GradientsAreThoseOfPlainOperations) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const char* mixer :
       {"softmax:heads=2",
        "gla:heads=2",
        "gla:heads=2,conv=4,norm=layer",
        "mamba2:head=64",
        "gated_deltanet:heads=2",
        "gated_deltanet:heads=2,value_heads=4,expand_v=2",
        "deltanet:heads=2",
        "kda:heads=2",
        "mlstm:heads=2",
        "retnet:heads=2",
        "metala:heads=2",
        "two_mamba:heads=2",
        "s6"}) {
    ModelOptions o = small({mixer});
    o.D = 128;
    at::manual_seed(3);
    const auto model = std::make_shared<Model>(o);
    const at::Tensor x = tokens(2, 150);
    const auto gradients = [&](at::Device device, at::ScalarType type) {
      model->to(device, type);
      ModelState none;
      Context context;
      context.keep_state = false;
      const at::Tensor y = model->forward(x.to(device), none, context).log_softmax(-1);
      std::vector<at::Tensor> all;
      for (const at::Tensor& d :
           torch::autograd::grad({y.select(-1, 3).mean()}, model->parameters()))
        all.push_back(d.to(at::kCPU, at::kDouble));
      return all;
    };
    const auto exact = gradients(at::kCPU, at::kDouble), own = gradients(at::kCUDA, at::kFloat);
    const auto names = model->named_parameters().keys();
    for (size_t i = 0; i < exact.size(); ++i)
      EXPECT_LT(relative_error(own[i], exact[i]), 1e-2) << mixer << " " << names[i];
  }
}

TEST(Model, RefusesInOneLine) {
  const auto message = [](ModelOptions o) {
    try {
      Model model(o);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(small({"softmx"})), "unknown mixer 'softmx'; did you mean 'softmax'?");
  EXPECT_EQ(message(small({"taylor:ordr=2"})), "unknown key 'ordr'; did you mean 'order'?");
  EXPECT_TRUE(message(small({})).starts_with("[model] pattern"));
  ModelOptions o = small({"softmax"});
  o.layers = 0;
  EXPECT_TRUE(message(o).starts_with("[model] layers"));
}

}  // namespace
}  // namespace horner
