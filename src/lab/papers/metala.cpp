#include <cmath>

#include "core/random.h"
#include "lab/papers/papers.h"

namespace horner {
namespace {

std::vector<Arm> ordering(Effort scale) {
  return {
      {"softmax", recall(scale, "softmax:heads=2,position.kind=none")},
      {"MetaLA", recall(scale, "metala:heads=2,conv=2,expand_k=1")},
      {"GLA", recall(scale, "gla:heads=2,expand_k=1")},
      {"Based", recall(scale, "taylor:order=2,heads=4")},
      {"Mamba", recall(scale, "s6:state=16")}};
}

std::vector<Arm> ablation(Effort scale) {
  return {
      {"MetaLA", language(scale, {"metala"})},
      {"no self-augmentation", language(scale, {"metala:augment=false"})},
      {"no convolution", language(scale, {"metala:conv=0"})},
      {"with a key", language(scale, {"metala:key=own"})}};
}

// Condition C2: whether a given row p of a softmax map can be had with bounded parameters.
void conditions(Effort, int64_t, Finding& finding) {
  constexpr int64_t T = 64;
  // Without a key: a_s = P_{s-1} / P_s, q = 1, k = 1 - a gives p exactly, P the running sum of p.
  Random random(7, Split::test, Stream::content, 0);
  std::vector<double> p(T);
  double total = 0;
  for (double& x : p) total += x = std::exp(random.normal());
  double error = 0, largest = 0, sum = 0;
  std::vector<double> a(T), k(T);
  for (int64_t s = 0; s < T; ++s) {
    const double before = sum;
    sum += p[size_t(s)] / total;
    a[size_t(s)] = before / sum;
    k[size_t(s)] = 1 - a[size_t(s)];
  }
  double after = 1;
  for (int64_t s = T - 1; s >= 0; --s) {
    error = std::max(error, std::abs(after * k[size_t(s)] - p[size_t(s)] / total));
    after *= a[size_t(s)];
  }
  // A fixed decay a = 1 - 2^-5 needs |k_s| >= p_s / a^(T-1-s): how large it becomes at T and at 2 T.
  const double fixed = 1 - std::exp2(-5);
  for (int64_t s = 0; s < T; ++s) {
    largest = std::max(largest, p[size_t(s)] / total / std::pow(fixed, double(T - 1 - s)));
  }
  const double longer = largest / std::pow(fixed, double(T));
  finding.rows = {
      {"C2 error without a key", {error}, true},
      {"C2 key of a fixed decay, T", {largest}, true},
      {"C2 key of a fixed decay, 2T", {longer}, true}};
}

}  // namespace

Paper metala_paper() {
  using E = Expectation;
  return {
      "metala",
      "2411.10741",
      "MetaLA: unified optimal linear approximation to softmax attention map",
      {
          {"conditions",
           "A dynamic decay and a query approximate any static map with bounded parameters; a "
           "fixed "
           "decay needs keys that grow without bound",
           "a random map of 64 tokens, in closed form",
           "value",
           {{E::under, "C2 error without a key", "", 1e-12},
            {E::above, "C2 key of a fixed decay, 2T", "C2 key of a fixed decay, T"}},
           1,
           nullptr,
           conditions},
          {"recall",
           "MetaLA recalls better than Mamba, GLA and Based; attention is above 99 %",
           "MQAR",
           "test/accuracy",
           {{E::reaches, "softmax", "", 0.95},
            {E::above, "MetaLA", "Mamba"},
            {E::above, "MetaLA", "GLA"},
            {E::above, "MetaLA", "Based"}},
           3,
           ordering},
          {"ablation",
           "The short convolution matters most, self-augmentation a little, a key of its own "
           "nothing",
           "bytes of text",
           "test/loss",
           {{E::above, "MetaLA", "no convolution"},
            {E::above, "MetaLA", "no self-augmentation"},
            {E::near, "with a key", "MetaLA", 0.02}},
           3,
           ablation},
      }};
}

}  // namespace horner
