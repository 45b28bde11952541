#include "tasks/examples.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "core/interrupt.h"

namespace horner {

void each_example(
    const std::vector<int64_t>& indices, const std::function<void(int64_t, int64_t)>& make
) {
  at::parallel_for(0, int64_t(indices.size()), 8, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      stop_if_alone("examples were made");
      make(row, indices[size_t(row)]);
    }
  });
}

size_t segment_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& indices) {
  HORNER_CHECK(!indices.empty(), "[task] a batch needs at least one example");
  int64_t start = 0;
  for (size_t segment = 0; segment < sizes.size(); ++segment) {
    const int64_t rest = indices.front() - start;
    if (rest < sizes[segment]) {
      for (const int64_t index : indices) {
        HORNER_CHECK(
            index >= start && index - start < sizes[segment],
            "[task] examples {} and {} lie in different segments",
            indices.front(),
            index
        );
      }
      return segment;
    }
    start += sizes[segment];
  }
  throw UsageError("[task] there is no example {}", indices.front());
}

void ExampleOptions::check(std::string_view task) const {
  HORNER_CHECK(train >= 0, "[{}] train must be at least 0, got {}", task, train);
  HORNER_CHECK(test >= 1, "[{}] test must be at least 1, got {}", task, test);
}

int64_t ExampleOptions::size(Split split) const {
  if (split != Split::train) return test;
  return train == 0 ? kEndless : train;
}

Random ExampleOptions::random(Split split, int64_t index, Stream stream) const {
  return Random(uint64_t(seed), split, stream, uint64_t(index));
}

void LengthOptions::check(std::string_view task, int64_t least) const {
  ExampleOptions::check(task);
  for (const Split split : {Split::train, Split::test}) {
    HORNER_CHECK(
        least <= low(split) && low(split) <= high(split),
        "[{}] lengths must be at least {} and the shortest at most the longest, got {} to {}",
        task,
        least,
        low(split),
        high(split)
    );
  }
}

Batch Generated::batch(Split split, const std::vector<int64_t>& indices) const {
  segment_of({size(split)}, indices);
  const Layout layout = this->layout(split);
  const int64_t B = int64_t(indices.size()), T = layout.T;
  Batch batch;
  batch.tokens = at::zeros({B, T}, at::kLong);
  if (layout.targets) batch.targets = at::full({B, T}, kNoTarget, at::kLong);
  if (layout.labels) batch.labels = at::zeros({B}, at::kLong);
  if (layout.lengths) batch.lengths = at::zeros({B}, at::kLong);
  std::array<int64_t*, 2> slices{};
  for (size_t i = 0; i < layout.slices.size(); ++i) {
    slices[i] =
        (batch.slices[layout.slices[i]] = at::zeros({B}, at::kLong)).mutable_data_ptr<int64_t>();
  }
  const auto data = [](const at::Tensor& x) {
    return x.defined() ? x.mutable_data_ptr<int64_t>() : nullptr;
  };
  int64_t *tokens = data(batch.tokens), *targets = data(batch.targets);
  int64_t *labels = data(batch.labels), *lengths = data(batch.lengths);
  each_example(indices, [&](int64_t row, int64_t index) {
    Random random = sizes_.random(split, index);
    Example example{tokens + row * T, targets == nullptr ? nullptr : targets + row * T, T};
    make(split, index, random, example);
    if (labels != nullptr) labels[row] = example.label;
    if (lengths != nullptr) lengths[row] = example.length;
    for (size_t i = 0; i < layout.slices.size(); ++i) slices[i][row] = example.slices[i];
  });
  return batch;
}

Batch test_sample(const Task& task, int64_t most) {
  const int64_t room = std::max<int64_t>(1, (int64_t{1} << 20) / task.shape().T);
  std::vector<int64_t> indices(size_t(std::min({most, room, task.size(Split::test)})));
  std::iota(indices.begin(), indices.end(), 0);
  return task.batch(Split::test, indices);
}

double mean_score(
    const Batch& batch,
    const std::function<double(const std::vector<int64_t>&, const std::vector<int64_t>&)>& score
) {
  const int64_t B = batch.tokens.size(0), T = batch.tokens.size(1);
  double sum = 0;
  for (int64_t row = 0; row < B; ++row) {
    const int64_t* tokens = batch.tokens.const_data_ptr<int64_t>() + row * T;
    const int64_t* targets = batch.targets.const_data_ptr<int64_t>() + row * T;
    std::vector<int64_t> counted;
    for (int64_t t = 0; t < T; ++t) {
      if (targets[t] != kNoTarget) counted.push_back(targets[t]);
    }
    sum += score(counted, {tokens, tokens + T});
  }
  return sum / double(B);
}

double share_of_most_frequent(const std::vector<int64_t>& numbers) {
  std::map<int64_t, int64_t> count;
  int64_t most = 0;
  for (const int64_t number : numbers) most = std::max(most, ++count[number]);
  return numbers.empty() ? 0 : double(most) / double(numbers.size());
}

double lookup_accuracy(
    const std::vector<int64_t>& train,
    const at::Tensor& train_labels,
    const std::vector<int64_t>& test,
    const at::Tensor& test_labels
) {
  const int64_t *fit = train_labels.const_data_ptr<int64_t>(),
                *want = test_labels.const_data_ptr<int64_t>();
  std::map<int64_t, std::map<int64_t, int64_t>> count;  // feature -> label -> examples
  for (size_t i = 0; i < train.size(); ++i) ++count[train[i]][fit[i]];
  const auto answer = [&](int64_t feature) {
    const auto found = count.find(feature);
    if (found == count.end()) return kNoTarget;
    const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
    return std::max_element(found->second.begin(), found->second.end(), fewer)->first;
  };
  int64_t right = 0;
  for (size_t i = 0; i < test.size(); ++i) right += answer(test[i]) == want[i];
  return double(right) / double(test.size());
}

}  // namespace horner
