// How weights start where a paper or its authors' code says so, and the settings of layers that their code has.
#include <gtest/gtest.h>

#include <cmath>

#include "core/check.h"
#include "core/thrown_test.h"
#include "model/model.h"
#include "nn/features/features.h"

namespace horner {
namespace {

at::Tensor weight(const ModelOptions& o, const std::string& name) {
  return make_model(o, 1)->named_parameters()[name].detach();
}
double deviation(const at::Tensor& x) { return x.std().item<double>(); }

ModelOptions of(const std::string& mixer, const std::string& init = "normal") {
  ModelOptions o;
  o.pattern = {mixer};
  o.layers = 3;
  o.D = 128;
  o.init = init;
  return o;
}

// mLSTM's output starts at 2 / (L sqrt D): L is the model's, not 12.
TEST(Starts, MlstmKnowsTheDepthOfItsModel) {
  const double expected = 2 / (3 * std::sqrt(128.0));
  EXPECT_NEAR(
      deviation(weight(of("mlstm"), "layer_0.mixer.out_weight")), expected, 0.03 * expected
  );
  EXPECT_NEAR(
      deviation(weight(of("mlstm:layers=6"), "layer_0.mixer.out_weight")),
      expected / 2,
      0.02 * expected
  );
}

// xlstm-jax: embedding, up and gate sqrt(2/(5D)), what is written 2/(L sqrt D), output gates 0.
TEST(Starts, Xlstm) {
  const ModelOptions o = of("mlstm", "xlstm");
  const double read = std::sqrt(2 / (5 * 128.0)), write = 2 / (3 * std::sqrt(128.0));
  for (const char* name : {"embedding", "layer_1.mlp_up_weight", "layer_1.mlp_gate_weight"})
    EXPECT_NEAR(deviation(weight(o, name)), read, 0.03 * read) << name;
  for (const char* name : {"layer_1.mlp_down_weight", "layer_1.mixer.out_weight"})
    EXPECT_NEAR(deviation(weight(o, name)), write, 0.03 * write) << name;
  EXPECT_EQ(weight(o, "layer_0.mixer.output_gate_weight").abs().max().item<double>(), 0);
  EXPECT_EQ(weight(o, "layer_0.mixer.input_gate_weight").abs().max().item<double>(), 0);
}

// The angles start as their paper says, whatever the rest does: U(+-sqrt(6/P)), the convolution N(0, 0.02).
TEST(Starts, SelectiveAngles) {
  for (const char* init : {"normal", "torch", "torch_linear"}) {
    const ModelOptions o = of("gla:position.kind=selective_rope", init);  // K = 16, P = 8
    EXPECT_NEAR(deviation(weight(o, "layer_0.mixer.angle_conv_weight")), 0.02, 0.004) << init;
    const at::Tensor angles = weight(o, "layer_0.mixer.angle_weight").abs();
    const double bound = std::sqrt(6 / double(angles.size(2)));
    EXPECT_GT(angles.max().item<double>(), 0.95 * bound) << init;
    EXPECT_LE(angles.max().item<double>(), bound) << init;
  }
}

// torch.nn.Linear's start of the matrices; the embedding stays N(0, 0.02).
TEST(Starts, TorchLinear) {
  const ModelOptions o = of("softmax", "torch_linear");
  EXPECT_NEAR(deviation(weight(o, "embedding")), 0.02, 0.001);
  EXPECT_NEAR(
      weight(o, "layer_0.mixer.q_weight").abs().max().item<double>(), 1 / std::sqrt(128.0), 1e-3
  );
}

// The 64 features of the claims on LUNA: with R = 8 and torch's start some function of every projection is alive on data.
TEST(Starts, LunaHasNoDeadProjection) {
  const c10::NoGradGuard no_graph;
  ModelOptions o = of("luna:heads=2,map.projections=8,map.channels=8", "torch_linear");
  o.layers = 4;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const auto model = make_model(o, seed);
    for (int64_t layer = 0; layer < o.layers; ++layer) {
      Mixer& mixer = model->block(layer).mixer();
      const Inputs in = mixer.core(at::randn({4, 64, 128})).in;
      for (const at::Tensor& phi : {in.q, in.k}) {
        const at::Tensor alive = phi.reshape({-1, 8, 8}).amax({0, 2});  // of a projection
        EXPECT_GT(alive.min().item<double>(), 0) << seed << " " << layer;
      }
    }
  }
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

at::Tensor run(Mixer& mixer, const at::Tensor& x) {
  State state;
  return mixer.forward(x, state);
}

std::shared_ptr<Mixer> exact(const std::string& text, int64_t D) {
  at::manual_seed(2);
  const auto mixer = make_mixer(MixerSpec::parse(text), D);
  mixer->to(at::kDouble);
  return mixer;
}

// rms with a weight of 1/sqrt(V) is l2 up to eps; LayerNorm has a bias.
TEST(Starts, NormsThatWriteAsMuchAsL2) {
  const c10::NoGradGuard no_graph;
  const at::Tensor x = at::randn({1, 9, 32}, at::kDouble);
  const auto l2 = exact("softmax:norm=l2", 32), rms = exact("softmax:norm=rms,norm_start=unit", 32);
  for (const auto& p : l2->named_parameters())
    rms->named_parameters()[p.key()].copy_(p.value() * 50);
  for (const auto& p : l2->named_parameters()) p.value().mul_(50);
  EXPECT_LT(
      largest_difference(run(*l2, x), run(*rms, x)), 1e-3 * run(*l2, x).abs().max().item<double>()
  );
  const auto layer = exact("softmax:norm=layer,norm_bias=true", 32);
  EXPECT_EQ(layer->named_parameters()["norm_bias"].numel(), 8);
  EXPECT_THROW(exact("softmax:norm=rms,norm_bias=true", 32), UsageError);
}

// Figure 5 of arXiv:2405.15731 needs K other than V, with one head and biases.
TEST(Starts, KeysOfAnyWidth) {
  for (const char* name : {"softmax", "linear"}) {
    const auto m = exact(fmt::format("{}:heads=1,key=6,bias=true,position.kind=none", name), 32);
    EXPECT_EQ(m->named_parameters()["q_weight"].size(0), 6) << name;
    EXPECT_EQ(m->named_parameters()["v_weight"].size(0), 32) << name;
    EXPECT_EQ(m->named_parameters()["q_bias"].numel(), 6) << name;
    EXPECT_EQ(run(*m, at::randn({1, 5, 32}, at::kDouble)).size(2), 32) << name;
  }
}

// Of x itself, token by token: h = e^{-A dt} h + dt x B, y = C h + D x.
TEST(Starts, BareScansReadX) {
  const c10::NoGradGuard no_graph;
  const int64_t D = 8, N = 4, T = 6;
  const at::Tensor x = at::randn({1, T, D}, at::kDouble);
  const auto ssd = exact("mamba2:block=bare,state=4,expand=1", D),
             s6 = exact("s6:block=bare,state=4,expand=1", D);
  auto p = ssd->named_parameters(), r = s6->named_parameters();
  EXPECT_FALSE(r.contains("in_weight"));
  EXPECT_EQ(r["step_bias"].abs().max().item<double>(), 0);
  for (auto& parameters : {p, r}) {
    for (const auto& entry : parameters) entry.value().add_(0.1 * at::randn_like(entry.value()));
  }
  at::Tensor h = at::zeros({D, N}, at::kDouble), k = at::zeros({D, N}, at::kDouble);
  std::vector<at::Tensor> of_ssd, of_s6;
  for (int64_t t = 0; t < T; ++t) {
    const at::Tensor u = x[0][t];
    const auto parts = p["in_weight"].matmul(u).split_with_sizes({N, N, 1});
    const at::Tensor dt = at::softplus(parts[2] + p["step_bias"]);
    h = (-p["A_log"].exp() * dt).exp() * h + at::outer(dt * u, parts[0]);
    of_ssd.push_back(p["out_weight"].matmul(h.matmul(parts[1]) + p["skip"] * u));
    const auto own = r["x_weight"].matmul(u).split_with_sizes({1, N, N});
    const at::Tensor step = at::softplus(r["step_weight"].matmul(own[0]) + r["step_bias"]);
    k = (-r["A_log"].exp() * step.unsqueeze(1)).exp() * k + at::outer(step * u, own[1]);
    of_s6.push_back(r["out_weight"].matmul(k.matmul(own[2]) + r["skip"] * u));
  }
  EXPECT_LT(largest_difference(run(*ssd, x)[0], at::stack(of_ssd)), 1e-12);
  EXPECT_LT(largest_difference(run(*s6, x)[0], at::stack(of_s6)), 1e-12);
}

// The same authors' SSD: d is shared, its bias is the channel's own, A is one number.
TEST(Starts, SsdAsRunHasABiasPerChannel) {
  const c10::NoGradGuard no_graph;
  const int64_t D = 8, N = 4, T = 6;
  const at::Tensor x = at::randn({1, T, D}, at::kDouble);
  const auto ssd = exact("s6:block=ssd,state=4,expand=1", D);
  auto p = ssd->named_parameters();
  EXPECT_EQ(p["A_log"].numel(), 1);
  EXPECT_EQ(p["A_log"].abs().max().item<double>(), 0);
  EXPECT_EQ(p["step_bias"].numel(), D);
  EXPECT_EQ(p["step_bias"].abs().max().item<double>(), 0);
  for (const auto& entry : p) entry.value().add_(0.1 * at::randn_like(entry.value()));
  at::Tensor h = at::zeros({D, N}, at::kDouble);
  std::vector<at::Tensor> rows;
  for (int64_t t = 0; t < T; ++t) {
    const at::Tensor u = x[0][t];
    const auto parts = p["x_weight"].matmul(u).split_with_sizes({1, N, N});
    const at::Tensor dt = at::softplus(parts[0] + p["step_bias"]).unsqueeze(1);  // (D,1)
    h = (-p["A_log"].exp() * dt).exp() * h + dt * at::outer(u, parts[1]);
    rows.push_back(p["out_weight"].matmul(h.matmul(parts[2]) + p["skip"] * u));
  }
  EXPECT_LT(largest_difference(run(*ssd, x)[0], at::stack(rows)), 1e-12);
}

// MetaLA starts as its authors' code whatever the rest does, outputs aside.
TEST(Starts, MetaLAKeepsItsStart) {
  const ModelOptions plain = of("metala"), small = of("metala", "gpt2");
  for (const char* name : {"q_weight", "v_weight"}) {
    const std::string full = fmt::format("layer_0.mixer.{}", name);
    EXPECT_EQ(largest_difference(weight(plain, full), weight(small, full)), 0) << name;
  }
}

// Linear attention's weights under the normalisers that the Taylor paper gives the exponential.
TEST(Starts, LinearAttentionWithL2AndGate) {
  const c10::NoGradGuard no_graph;
  const int64_t D = 8, T = 5;
  const at::Tensor x = 9 * at::randn({1, T, D}, at::kDouble);
  for (const char* norm : {"l2", "gate"}) {
    const auto m = exact(fmt::format("linear:feature=relu,heads=1,norm={}", norm), D);
    auto p = m->named_parameters();
    for (const auto& entry : p) entry.value().normal_();
    const auto of = [&](const char* name) { return x[0].matmul(p[name].t()); };
    const at::Tensor A = of("q_weight").relu().matmul(of("k_weight").relu().t()).tril();
    at::Tensor y = A.matmul(of("v_weight"));
    if (norm == std::string("l2")) {
      y = y / y.norm(2, -1, true);
    } else {
      const at::Tensor t = at::arange(1, T + 1, at::kDouble).unsqueeze(1);
      y = y * at::sigmoid(of("norm_gate_weight") + p["norm_gate_bias"]) / t;
    }
    const at::Tensor expected = y.matmul(p["out_weight"].t());
    EXPECT_LT(
        largest_difference(run(*m, x)[0], expected), 1e-5 * expected.abs().max().item<double>()
    ) << norm;
  }
}

// The authors' relu features are plain; a query that sees nothing reads 0.
TEST(Starts, ReluFeaturesArePlain) {
  torch::nn::Module module("m");
  const Features relu(module, "relu", 1, 1, 3, 0);
  const at::Tensor x = at::tensor({-1.0, 0.0, 2.0}, at::kDouble).view({1, 1, 1, 3});
  EXPECT_EQ(largest_difference(relu.queries(x), x.relu()), 0);
  const auto m = exact("linear:feature=relu,heads=1", 4);
  const c10::NoGradGuard no_graph;
  m->named_parameters()["q_weight"].copy_(-at::eye(4, at::kDouble));
  EXPECT_EQ(run(*m, at::ones({1, 3, 4}, at::kDouble)).abs().max().item<double>(), 0);
}

// 2Mamba's convolution has a bias; rows of the build-up have SiLU on q and k only, and no decay.
TEST(Starts, TwoMambaAsItsAuthors) {
  EXPECT_TRUE(exact("two_mamba", 16)->named_parameters().contains("conv_bias"));
  const auto row =
      exact("two_mamba:kernel=linear,conv=0,conv_activation=silu_qk,decay=false,step=false", 16);
  EXPECT_FALSE(row->named_parameters().contains("decay_weight"));
  const c10::NoGradGuard no_graph;
  const at::Tensor x = at::randn({1, 5, 16}, at::kDouble);
  const Inputs in = row->core(x).in;
  EXPECT_LT(
      largest_difference(
          in.q.flatten(2), at::silu(x.matmul(row->named_parameters()["q_weight"].t()))
      ),
      1e-12
  );
  EXPECT_LT(
      largest_difference(in.v.flatten(2), x.matmul(row->named_parameters()["v_weight"].t())), 1e-12
  );
}

}  // namespace
}  // namespace horner
