// What the tests of the papers share: the example that most of them are worked on.
//
// With x = I, token t is the t-th unit vector, so a projection whose columns are given vectors
// hands exactly those to the op; D = 4, two equal heads of 2, and W_o = I show its output.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "mixers/contract.h"

namespace horner::worked {

inline at::Tensor vec(std::vector<double> numbers) { return at::tensor(numbers, at::kDouble); }
inline at::Tensor rows(std::vector<double> numbers) {
  return vec(std::move(numbers)).view({-1, 2});
}

inline const at::Tensor q = rows({.5, -1, 1, .25, -.75, .5, .2, 1.5});
inline const at::Tensor k = rows({1, .5, -.5, 1, .25, -1.25, 1.5, .75});
inline const at::Tensor v = rows({1, -2, .5, .25, -1, 3, 2, 1});
inline const at::Tensor four_tokens = at::eye(4, at::kDouble).unsqueeze(0);  // (1,4,4)
inline const std::string plain = "position.kind=none,";

using Weights = std::map<std::string, at::Tensor>;

inline std::shared_ptr<Mixer> mixer(std::string_view name, int64_t D, const std::string& options) {
  at::manual_seed(1);
  auto m = make_mixer({std::string(name), parse_settings(options)}, D);
  m->to(at::kDouble);
  return m;
}

inline void set(Mixer& m, const Weights& weights) {
  const c10::NoGradGuard no_graph;
  auto parameters = m.named_parameters();
  for (const auto& [name, value] : weights) {
    at::Tensor* parameter = parameters.find(name);
    ASSERT_NE(parameter, nullptr) << m.name() << " has no " << name;
    parameter->copy_(value.expand_as(*parameter));
  }
}

inline at::Tensor forward(Mixer& m, const at::Tensor& x) {
  const c10::NoGradGuard no_graph;
  State state;
  return m.forward(x, state);
}

inline at::Tensor doubled(const at::Tensor& x) { return at::cat({x, x}, 1).t().contiguous(); }

// A mixer that gets q, k, v as above, or what `more` says.
inline std::shared_ptr<Mixer> example(
    std::string_view name, const std::string& options, const Weights& more = {}
) {
  const auto m = mixer(name, 4, "heads=2," + options);
  Weights weights = more;
  weights.merge(Weights{
      {"q_weight", doubled(q)},
      {"k_weight", doubled(k)},
      {"v_weight", doubled(v)},
      {"out_weight", at::eye(4, at::kDouble)}});
  set(*m, weights);
  return m;
}

// Its o (4,2).
inline at::Tensor output(std::string_view name, const std::string& options, Weights more = {}) {
  const at::Tensor y = forward(*example(name, options, more), four_tokens).squeeze(0);
  EXPECT_TRUE(at::equal(y.narrow(1, 0, 2), y.narrow(1, 2, 2)));
  return y.narrow(1, 0, 2);
}

// Its map (4,4), and its map's last rows.
inline at::Tensor weights_of(Mixer& m, const at::Tensor& x = four_tokens) {
  const c10::NoGradGuard no_graph;
  return m.map(x).select(0, 0).select(0, 0);
}

inline double furthest(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

inline void expect_rows(const at::Tensor& o, std::vector<double> last, double within = 2e-9) {
  const at::Tensor expected = rows(std::move(last));
  const at::Tensor got = o.narrow(0, o.size(0) - expected.size(0), expected.size(0));
  EXPECT_LT(furthest(got, expected), within) << got;
}

inline void expect_numbers(
    const at::Tensor& got, std::vector<double> numbers, double within = 2e-9
) {
  EXPECT_LT(furthest(got.flatten(), vec(std::move(numbers))), within) << got;
}

}  // namespace horner::worked
