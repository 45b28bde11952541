// Multi-query associative recall (arXiv:2312.04927): pairs, then their keys again at random places;
// the answer to a key is its value.
//
//   ids: 0 filler, 1 .. N/2-1 keys, N/2 .. N-1 values
//   tokens[2j], tokens[2j+1] = keys[j], vals[j]                   j = 0 .. P-1
//   tokens[2P + 2 g[j]] = keys[j], targets there = vals[j]        g = race(w, P), w_i = (i+1)^(a-1)
//   noise: every filler that is left becomes a random id
//
// Several (T, pairs) are segments: visited in this order, not shuffled across (protocol B of Based).
#pragma once

#include "tasks/task.h"

namespace horner {

struct MqarOptions {
  std::vector<int64_t> T = {128};
  std::vector<int64_t> pairs = {24};
  std::vector<int64_t> train = {0};
  std::vector<int64_t> test_T, test_pairs;
  int64_t test = 1000;
  int64_t vocabulary = 256;
  double power = 0.01;
  bool noise = false;
  int64_t seed = 1234;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("T", T, "tokens of an example, one number per segment");
    visit("pairs", pairs, "key/value pairs P, one number per segment");
    visit("train", train, "training examples of each segment; 0: endless, one segment only");
    visit("test_T", test_T, "likewise for validation and test; empty: as in training");
    visit("test_pairs", test_pairs, "likewise for validation and test; empty: as in training");
    visit("test", test, "examples of each segment of validation and of test");
    visit("vocabulary", vocabulary, "ids N");
    visit("power", power, "a: how strongly early questions are preferred; 1: not at all");
    visit("noise", noise, "random ids instead of filler");
    visit("seed", seed, "seed of the data");
  }
};

class Mqar : public Task {
 public:
  using Options = MqarOptions;
  explicit Mqar(const Options& options);
  TaskShape shape() const override;
  int64_t size(Split split) const override;
  std::vector<int64_t> segments(Split split) const override;
  Batch batch(Split split, const std::vector<int64_t>& indices) const override;
  OnGpu on_gpu(Split split, int64_t index) const override;
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }

 private:
  struct Segment {
    int64_t T, pairs, size;
  };
  const std::vector<Segment>& list(Split split) const;
  std::vector<double> weights(const Segment& segment) const;  // of the places of questions

  const Options o_;
  std::vector<Segment> train_, test_;
};

}  // namespace horner
