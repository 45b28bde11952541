// Variants of mqar (own layouts): what makes recall harder, or easier, for a mixer.
//
//   mqar_comp     keys of two tokens (a_i, b_j) from a grid of sqrt(P) x sqrt(P), so one token does not
//                 identify the key. Ids in thirds: 0 filler, then a, b, values.
//                 a b value for every pair in random order; questions a b, the target at b
//   mqar_forget   R of the P keys are written again, with another value, after all pairs; the target
//                 is the last value
//   mqar_stacked  a pair is one position with features [E_k(key); E_v(value)], a question
//                 [E_k(key); 0]: one layer can answer without a convolution. E_k and E_v are the same
//                 for all examples, N(0, 1/e) each. Targets are value ids 0 .. N-1
//
// Questions are placed as in mqar: g = race(w, P), w_i = (i+1)^(a-1).
#pragma once

#include "tasks/examples.h"

namespace horner {

struct MqarVariantOptions : ExampleOptions {
  int64_t T = 128, pairs = 16, vocabulary = 256;
  double power = 0.01;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("T", T, "positions of an example");
    visit("pairs", pairs, "key/value pairs P");
    visit("vocabulary", vocabulary, "ids N");
    visit("power", power, "a: how strongly early questions are preferred; 1: not at all");
    ExampleOptions::visit(visit);
  }
};

class MqarComp : public Generated {
 public:
  using Options = MqarVariantOptions;
  explicit MqarComp(const Options& options);
  TaskShape shape() const override;
  OnGpu on_gpu(Split split, int64_t index) const override;
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }

 protected:
  Layout layout(Split split) const override;
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  const Options o_;
  const std::vector<double> weights_;
};

struct MqarForgetOptions : MqarVariantOptions {
  int64_t rewrites = 8;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("rewrites", rewrites, "keys R that get another value");
    MqarVariantOptions::visit(visit);
  }
};

class MqarForget : public Generated {
 public:
  using Options = MqarForgetOptions;
  explicit MqarForget(const Options& options);
  TaskShape shape() const override;
  OnGpu on_gpu(Split split, int64_t index) const override;
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }

 protected:
  Layout layout(Split split) const override;
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  const Options o_;
  const std::vector<double> weights_;
};

struct MqarStackedOptions : MqarVariantOptions {
  int64_t e = 32;
  MqarStackedOptions() { T = 64; }

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("e", e, "numbers of a key, and of a value");
    MqarVariantOptions::visit(visit);
  }
};

class MqarStacked : public Task {
 public:
  using Options = MqarStackedOptions;
  explicit MqarStacked(const Options& options);
  TaskShape shape() const override;
  int64_t size(Split split) const override { return o_.size(split); }
  Batch batch(Split split, const std::vector<int64_t>& indices) const override;
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }

 private:
  const Options o_;
  const std::vector<double> weights_;
  at::Tensor keys_, values_;  // E_k, E_v (N,e)
};

}  // namespace horner
