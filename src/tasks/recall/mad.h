// The tasks of mechanistic architecture design (arXiv:2403.17844); its selective copying is
// selective_copy:G=224,M=16,A=16.
//
//   recall     T/2 pairs: a key of the lower half of the ids, its value of the upper half, drawn once
//              per sequence; the last pair repeats a key. Noisy: the last `noise_ids` ids are noise,
//              and a pair is two of them with probability `noise`.
//   fuzzy      keys and values are motifs of 1 .. motif tokens; a sequence has N/2 keys. Ids: 0 filler
//              (in front), 1 .. N/2-1 of keys, N/2 .. N-1 of values
//   memorise   one table key -> value for all examples; tokens key, slot, key, slot ..; the value is
//              the target at the slot. Ids: K = (N-1)/2 keys, K values, N-1 the slot
//   compress   T-1 random tokens, then id N-1; the output at the last position has to rebuild them all
//
// Recall's targets: in training the next token everywhere (masked: as in the test); in validation and
// test the value, where its key occurred before.
#pragma once

#include "tasks/examples.h"

namespace horner {

struct MadRecallOptions : ExampleOptions {
  int64_t N = 16, T = 128;
  int64_t noise_ids = 0;
  double noise = 0;
  bool masked = false;
  MadRecallOptions() { train = 12800, test = 1280; }

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("N", N, "ids");
    visit("T", T, "tokens of an example");
    visit("noise_ids", noise_ids, "ids that are noise, of the N");
    visit("noise", noise, "probability that a pair is noise");
    visit("masked", masked, "count in training what counts in the test");
    ExampleOptions::visit(visit);
  }
};

class MadRecall : public Generated {
 public:
  using Options = MadRecallOptions;
  explicit MadRecall(const Options& options);
  TaskShape shape() const override;
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }

 protected:
  Layout layout(Split split) const override;
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  const Options o_;
  const int64_t half_;  // keys, and values
};

struct MadNoisyRecall : MadRecall {
  struct Options : MadRecallOptions {
    Options() { N = 32, noise_ids = 16, noise = 0.2; }
  };
  explicit MadNoisyRecall(const Options& options) : MadRecall(options) {}
};

struct MadFuzzyOptions : ExampleOptions {
  int64_t N = 16, T = 128, motif = 3;
  bool masked = false;
  MadFuzzyOptions() { train = 12800, test = 1280; }

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("N", N, "ids");
    visit("T", T, "tokens of an example");
    visit("motif", motif, "tokens of the longest key and value");
    visit("masked", masked, "count in training what counts in the test");
    ExampleOptions::visit(visit);
  }
};

class MadFuzzyRecall : public Generated {
 public:
  using Options = MadFuzzyOptions;
  explicit MadFuzzyRecall(const Options& options);
  TaskShape shape() const override;
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }

 protected:
  Layout layout(Split split) const override;
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  const Options o_;
};

struct MadMemoriseOptions : ExampleOptions {
  int64_t N = 256, T = 32;
  MadMemoriseOptions() { train = 256, test = 1280; }

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("N", N, "ids");
    visit("T", T, "tokens of an example");
    ExampleOptions::visit(visit);
  }
};

class MadMemorise : public Generated {
 public:
  using Options = MadMemoriseOptions;
  explicit MadMemorise(const Options& options);
  TaskShape shape() const override;
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }

 protected:
  Layout layout(Split split) const override;
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  const Options o_;
  std::vector<int64_t> table_;  // value of each key
};

struct MadCompressOptions : ExampleOptions {
  int64_t N = 16, T = 32;
  MadCompressOptions() { train = 12800, test = 1280; }

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("N", N, "ids");
    visit("T", T, "tokens of an example");
    ExampleOptions::visit(visit);
  }
};

class MadCompress : public Generated {
 public:
  using Options = MadCompressOptions;
  explicit MadCompress(const Options& options);
  TaskShape shape() const override;
  std::shared_ptr<Task> at_length(int64_t T) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }

 protected:
  Layout layout(Split split) const override;
  void make(Split split, int64_t index, Random& random, Example& example) const override;

 private:
  const Options o_;
};

}  // namespace horner
