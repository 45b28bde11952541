// Selective RoPE (arXiv:2511.17388).
#include <numbers>

#include "mixers/papers/worked.h"
#include "nn/position/position.h"

namespace horner::worked {
namespace {

// K = 2, V = 1, temperature 1, increments .5, 1, -.5.
TEST(SelectiveRope, WorkedExample) {
  const at::Tensor angle = vec({.5, 1.0, -.5}).cumsum(0).view({1, 3, 1, 1});
  Inputs in;
  in.q = rotated(rows({1, 0, 0, 1, 1, 1}).view({1, 3, 1, 2}), angle);
  in.k = rotated(rows({1, 0, 1, 1, 0, 1}).view({1, 3, 1, 2}), angle);
  in.v = vec({1, 2, 3}).view({1, 3, 1, 1});
  expect_numbers(run(find_op("linear"), in, {}, {}).o, {1, 1.158529015, 6.908487271});
  expect_numbers(run(find_op("attention"), in, {}, {}).o, {1, 1.786190991, 2.103182359});
  Inputs decayed = in;
  decayed.g = at::full({1, 3, 1}, std::log(.5), at::kDouble);
  expect_numbers(run(find_op("linear"), decayed, {}, {}).o, {1, 1.579264508, 4.854704380});
}

// Increments of 1 are rope, of 0 no rotation, as is a temperature of 0.
TEST(SelectiveRope, ReducesToRopeAndToNone) {
  const at::Tensor x = at::randn({2, 11, 16}, at::kDouble) * 3;
  const std::string selective = "position.kind=selective_rope,position.gate=none";
  for (const auto& [name, options] :
       {std::pair{"softmax", ""},
        {"linear", "feature=identity,norm=none,"},
        {"gla", "tie_pair_decay=true,heads=2,"},
        {"gated_deltanet", ""}}) {
    const auto with =
        [&, name = name, options = options](const std::string& position, double length = 0) {
          const auto m = mixer(name, 16, options + position);
          const auto plain_one = mixer(name, 16, std::string(options) + "position.kind=none");
          const c10::NoGradGuard no_graph;
          auto from = plain_one->named_parameters();
          for (auto& parameter : m->named_parameters()) {
            if (const at::Tensor* value = from.find(parameter.key()))
              parameter.value().copy_(*value);
            if (parameter.key() == "angle_length") parameter.value().fill_(length);
          }
          return forward(*m, x);
        };
    const at::Tensor rope = with("position.kind=rope"), none = with("position.kind=none");
    EXPECT_LT(relative_error(with(selective + ",position.bias=true"), rope), 1e-11) << name;
    EXPECT_LT(relative_error(with(selective), none), 1e-12) << name;
    EXPECT_LT(relative_error(with(selective + ",position.temperature_max=0", 1), none), 1e-12);
    EXPECT_GT(relative_error(rope, none), 1e-4) << name;
  }
}

// Turning q and k is turning the state: z_t = a_t e^{i th_t} z_{t-1} + .. with one complex number per
// pair. A decay per channel commutes with that only where both channels of a pair share it.
TEST(SelectiveRope, PairsMustDecayAlike) {
  constexpr int64_t T = 9, P = 2, V = 3;
  const at::Tensor phi = at::randn({T, P}, at::kDouble), values = at::randn({T, V}, at::kDouble);
  const at::Tensor Q = at::randn({T, 2 * P}, at::kDouble), K = at::randn({T, 2 * P}, at::kDouble);
  const auto difference = [&](const at::Tensor& g) {  // g (T,2P)
    const at::Tensor angle = phi.cumsum(0).view({1, T, 1, P});
    Inputs in;
    in.q = rotated(Q.view({1, T, 1, 2 * P}), angle);
    in.k = rotated(K.view({1, T, 1, 2 * P}), angle);
    in.v = values.view({1, T, 1, V});
    in.g = g.view({1, T, 1, 2 * P});
    const at::Tensor o = run(find_op("linear"), in, {}, {}).o.view({T, V});
    // The real recurrence: the state turns by -phi_t, q and k do not.
    at::Tensor S = at::zeros({2 * P, V}, at::kDouble);
    std::vector<at::Tensor> y;
    for (int64_t t = 0; t < T; ++t) {
      const at::Tensor turned = rotated(S.t().view({1, V, 1, 2 * P}), -phi[t].view({1, 1, 1, P}));
      S = g[t].exp().unsqueeze(1) * turned.view({V, 2 * P}).t() + at::outer(K[t], values[t]);
      y.push_back(at::matmul(Q[t], S));
    }
    return relative_error(o, at::stack(y));
  };
  const at::Tensor half = at::log_sigmoid(at::randn({T, P}, at::kDouble));
  EXPECT_LT(difference(at::cat({half, half}, 1)), 1e-12);
  EXPECT_LT(difference(at::zeros({T, 2 * P}, at::kDouble)), 1e-12);
  EXPECT_GT(difference(at::log_sigmoid(at::randn({T, 2 * P}, at::kDouble))), 1e-3);
}

// Only differences of angles count: a layer that has seen a million tokens, and forgotten them, does
// what a fresh one does. The sum is carried in fp64: in fp32 it would stop at multiples of 1/16.
TEST(SelectiveRope, AMillionTokensLater) {
  const at::Tensor x = at::randn({1, 6, 16});
  for (const char* position :
       {"position.kind=rope",
        "position.kind=selective_rope,position.bias=true,position.gate=none"}) {
    const auto m = mixer("linear", 16, std::string("feature=identity,norm=none,") + position);
    m->to(at::kFloat);
    const c10::NoGradGuard no_graph;
    State fresh;
    m->forward(at::zeros_like(x), fresh);  // leaves S = 0, and the angle behind
    State late = fresh;
    int64_t carried = 0;
    for (at::Tensor& part : late.parts) {
      const bool angle = part.scalar_type() == at::kDouble || part.scalar_type() == at::kLong;
      if (angle) part = part + 1000000;
      carried += angle ? 1 : 0;
    }
    EXPECT_EQ(carried, 1) << position;
    EXPECT_LT(relative_error(m->forward(x, late), m->forward(x, fresh)), 1e-4) << position;
  }
}

TEST(SelectiveRope, RotationKeepsLengths) {
  const at::Tensor y = at::randn({1, 5, 2, 6}, at::kDouble);
  const at::Tensor turned = rotated(y, at::randn({1, 5, 2, 3}, at::kDouble));
  EXPECT_LT(relative_error(turned.norm(2, -1), y.norm(2, -1)), 1e-14);
  expect_numbers(rfa_temperatures(4, 0.995), {0., .00450721683, .0134407551, 1.}, 1e-10);
}

// The spectrum of Theorem 1: sigma = tan(th/2) for unit q, k with q.k = cos th, where e^{1 - sigma^2 (1 + q.k)} = e^{q.k}.
TEST(SelectiveRope, SpectrumOfRandomFeatures) {
  constexpr double theta = 0.9;
  const at::Tensor temperatures = rfa_temperatures(5, theta);
  const double last = std::tan(theta * std::numbers::pi / 2);
  for (int64_t j = 0; j < 5; ++j) {
    const double cosine = std::cos(theta * std::numbers::pi * double(j) / 4);
    const double sigma = temperatures[j].item<double>() * last;
    EXPECT_NEAR(1 - sigma * sigma * (1 + cosine), cosine, 1e-10) << j;
  }
}

// Softmax is a mean of linear attentions whose states turn by w.(q_t - q_{t-1}) (equation 9): with random frequencies w ~ N(0, I)
// the mean of Re e^{i w.(q - k)} is e^{-|q - k|^2 / 2}, and |q|^2 cancels in the ratio.
TEST(SelectiveRope, SoftmaxIsASumOfRotations) {
  constexpr int64_t T = 6, K = 3, V = 2, P = 40000;
  at::manual_seed(3);
  const at::Tensor queries = at::randn({T, K}, at::kDouble), keys = at::randn({T, K}, at::kDouble);
  const at::Tensor values = at::randn({T, V}, at::kDouble), w = at::randn({K, P}, at::kDouble);
  const at::Tensor turned = at::matmul(queries, w),  // the angles of the states
      apart = turned - at::matmul(keys, w);          // a key's own phase
  const at::Tensor size = (keys.square().sum(1, true) / 2).exp();
  Inputs in;
  const at::Tensor one = at::cat({at::ones({T, P}), at::zeros({T, P})}, 1).to(at::kDouble);
  in.q = rotated(one.view({1, T, 1, 2 * P}), turned.view({1, T, 1, P}));
  in.k = rotated(
      at::cat({apart.cos(), -apart.sin()}, 1).view({1, T, 1, 2 * P}), turned.view({1, T, 1, P})
  );
  in.v = (at::cat({values, at::ones({T, 1}, at::kDouble)}, 1) * size).view({1, T, 1, V + 1});
  const at::Tensor o = run(find_op("linear"), in, {}, {}).o.view({T, V + 1});
  Inputs exact;
  exact.q = std::sqrt(double(K)) * queries.view({1, T, 1, K});
  exact.k = keys.view({1, T, 1, K});
  exact.v = values.view({1, T, 1, V});
  const at::Tensor softmax = run(find_op("attention"), exact, {}, {}).o.view({T, V});
  const at::Tensor ratio = o.narrow(1, 0, V) / o.narrow(1, V, 1);
  EXPECT_LT(relative_error(ratio, softmax), 0.05);
}

// A state that only turns leaks: past T tokens a frequency beside its own has the side lobes of a rectangular window
// (figure 3). With a decay they are gone: |1 - a^T e^{iTd}| / |1 - a e^{id}|, d the difference of the frequencies.
TEST(SelectiveRope, DecaySuppressesLeakage) {
  constexpr int64_t T = 64;
  const auto response = [](double d, double g) {
    const at::Tensor t = at::arange(T, at::kDouble);
    const double own = 0.7, input = own + d;
    Inputs in;  // two queries, for the real and the imaginary part
    const at::Tensor angle = (own * t).view({1, T, 1, 1});
    in.q = rotated(rows({1, 0, 0, 1}).view({1, 1, 2, 2}).expand({1, T, 2, 2}), angle);
    in.k = rotated(at::stack({(input * t).cos(), -(input * t).sin()}, 1).view({1, T, 1, 2}), angle)
               .expand({1, T, 2, 2});
    in.v = at::ones({1, T, 2, 1}, at::kDouble);
    in.g = at::full({1, T, 2}, g, at::kDouble);
    return run(find_op("linear"), in, {}, {}).o[0][T - 1].norm().item<double>();
  };
  const double turn = 2 * std::numbers::pi / double(T), peak = response(0, 0);
  EXPECT_NEAR(peak, double(T), 1e-9);
  EXPECT_NEAR(response(turn, 0), 0, 1e-9);
  const double lobe = 1.43 * turn;
  EXPECT_NEAR(response(lobe, 0), std::abs(std::sin(T * lobe / 2) / std::sin(lobe / 2)), 1e-9);
  EXPECT_NEAR(response(lobe, 0) / peak, 0.2174, 1e-3);
  EXPECT_NEAR(response(0, -1. / 8), 8.5076, 1e-3);
  EXPECT_NEAR(response(turn, -1. / 8) / response(0, -1. / 8), 0.7868, 1e-3);
  EXPECT_LT(response(lobe, -1. / 8), response(turn, -1. / 8));  // a skirt, no lobes
}

// One rotation of pi per one-bit tells parity: o_t = (x_1 + .. + x_t) mod 2, all strings of length
// 10.
TEST(SelectiveRope, RotationTracksParity) {
  at::Tensor bits = at::arange(1024)
                        .unsqueeze(1)
                        .bitwise_right_shift(at::arange(10))
                        .remainder(2)
                        .to(at::kDouble);
  const at::Tensor angle = (std::numbers::pi * bits).cumsum(1).view({1024, 10, 1, 1});
  Inputs in;
  in.q = rotated(vec({1., 0.}).expand({1024, 10, 1, 2}), angle);
  in.k = in.q;
  in.v = bits.view({1024, 10, 1, 1});
  const at::Tensor o = run(find_op("linear"), in, {}, {}).o.view({1024, 10});
  EXPECT_LT(furthest(o, bits.cumsum(1).remainder(2)), 1e-12);
}

}  // namespace
}  // namespace horner::worked
