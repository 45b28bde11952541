// What generators of examples share: the number of examples, and batches that are made row by row.
#pragma once

#include <array>
#include <functional>

#include "tasks/task.h"

namespace horner {

// Runs `make(row, index)` for every example, on all threads; the rows must not share what they write.
void each_example(
    const std::vector<int64_t>& indices, const std::function<void(int64_t row, int64_t index)>& make
);

// The segment that contains all the indices; an error if they lie in two segments, or beyond the last.
size_t segment_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& indices);

// Settings of every generator.
struct ExampleOptions {
  int64_t train = 0;
  int64_t test = 1000;
  int64_t seed = 1234;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("train", train, "training examples; 0: endless, none is seen twice");
    visit("test", test, "examples of validation and of test");
    visit("seed", seed, "seed of the data");
  }
  void check(std::string_view task) const;
  int64_t size(Split split) const;
  Random random(Split split, int64_t index, Stream stream = Stream::content) const;
};

// Settings of tasks whose examples differ in length.
struct LengthOptions : ExampleOptions {
  int64_t shortest = 3, longest = 40;
  int64_t test_shortest = 40, test_longest = 256;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("shortest", shortest, "tokens of the shortest example of training");
    visit("longest", longest, "tokens of the longest; all lengths are equally likely");
    visit("test_shortest", test_shortest, "likewise for validation and test");
    visit("test_longest", test_longest, "likewise for validation and test");
    ExampleOptions::visit(visit);
  }
  void check(std::string_view task, int64_t least) const;
  int64_t low(Split split) const { return split == Split::train ? shortest : test_shortest; }
  int64_t high(Split split) const { return split == Split::train ? longest : test_longest; }
};

// What a batch of generated examples holds besides the tokens.
struct Layout {
  int64_t T = 0;
  bool targets = true, labels = false, lengths = false;
  std::vector<std::string> slices = {};  // at most two
};

// One example, to be filled in.
struct Example {
  int64_t* tokens;   // (T), 0 at first
  int64_t* targets;  // (T), none at first; null if the layout has no targets
  int64_t length;    // T at first
  int64_t label = 0;
  std::array<int64_t, 2> slices = {};
};

// A task whose examples are made one by one.
class Generated : public Task {
 public:
  explicit Generated(const ExampleOptions& sizes) : sizes_(sizes) {}
  int64_t size(Split split) const override { return sizes_.size(split); }
  Batch batch(Split split, const std::vector<int64_t>& indices) const override;

 protected:
  virtual Layout layout(Split split) const = 0;
  virtual void make(Split split, int64_t index, Random& random, Example& example) const = 0;

  const ExampleOptions sizes_;
};

// The first test examples: about a million tokens, at most `most` examples.
Batch test_sample(const Task& task, int64_t most = 1000);

// Mean of score(targets, tokens) over the rows of a batch: the targets that count, and all tokens.
double mean_score(
    const Batch& batch,
    const std::function<double(const std::vector<int64_t>&, const std::vector<int64_t>&)>& score
);

// Share of the most frequent number; 0 of none.
double share_of_most_frequent(const std::vector<int64_t>& numbers);

// Test accuracy of the rule "each feature has its most frequent label of training"; labels (B).
double lookup_accuracy(
    const std::vector<int64_t>& train,
    const at::Tensor& train_labels,
    const std::vector<int64_t>& test,
    const at::Tensor& test_labels
);

}  // namespace horner
