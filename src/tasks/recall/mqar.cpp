#include "tasks/recall/mqar.h"

#include <ATen/Functions.h>

#include <cmath>

#include "core/check.h"
#include "tasks/examples.h"
#include "tasks/recall/on_gpu.h"

namespace horner {

Mqar::Mqar(const Options& o) : o_(o) {
  const auto fill = [&](std::vector<Segment>& list,
                        const std::vector<int64_t>& T,
                        const std::vector<int64_t>& pairs,
                        const std::vector<int64_t>& size) {
    HORNER_CHECK(
        !T.empty() && T.size() == pairs.size() && (size.size() == 1 || size.size() == T.size()),
        "[mqar] T, pairs and train must have one number per segment, got {}, {} and {}",
        T.size(),
        pairs.size(),
        size.size()
    );
    for (size_t i = 0; i < T.size(); ++i) {
      HORNER_CHECK(
          T[i] % 2 == 0 && pairs[i] >= 1 && 4 * pairs[i] <= T[i] && o.vocabulary > T[i],
          "[mqar] needs T even, 4 pairs <= T < vocabulary, got T={} pairs={} vocabulary={}",
          T[i],
          pairs[i],
          o.vocabulary
      );
      const int64_t n = size[size.size() == 1 ? 0 : i];
      HORNER_CHECK(
          n > 0 || (n == 0 && T.size() == 1),
          "[mqar] a segment needs at least one example, got {}",
          n
      );
      list.push_back({T[i], pairs[i], n == 0 ? kEndless : n});
    }
  };
  HORNER_CHECK(o.test >= 1, "[mqar] test must be at least 1, got {}", o.test);
  const bool own = !o.test_T.empty();
  fill(train_, o.T, o.pairs, o.train);
  fill(test_, own ? o.test_T : o.T, own ? o.test_pairs : o.pairs, {o.test});
}

const std::vector<Mqar::Segment>& Mqar::list(Split split) const {
  return split == Split::train ? train_ : test_;
}

std::vector<int64_t> Mqar::segments(Split split) const {
  std::vector<int64_t> sizes;
  for (const Segment& segment : list(split)) sizes.push_back(segment.size);
  return sizes;
}

int64_t Mqar::size(Split split) const {
  int64_t total = 0;
  for (const Segment& segment : list(split)) {
    if (segment.size == kEndless) return kEndless;
    total += segment.size;
  }
  return total;
}

TaskShape Mqar::shape() const {
  TaskShape shape;
  for (const auto* split : {&train_, &test_}) {
    for (const Segment& segment : *split) shape.T = std::max(shape.T, segment.T);
  }
  shape.vocabulary = o_.vocabulary;
  return shape;
}

std::vector<double> Mqar::weights(const Segment& s) const {
  std::vector<double> list(static_cast<size_t>((s.T - 2 * s.pairs) / 2));
  for (size_t i = 0; i < list.size(); ++i) list[i] = std::pow(double(i + 1), o_.power - 1);
  return list;
}

Task::OnGpu Mqar::on_gpu(Split split, int64_t index) const {
  const Segment& s = list(split)[segment_of(segments(split), {index})];
  const RecallOnGpu gpu{
      RecallOnGpu::Kind::mqar, s.T, s.pairs, 0, o_.vocabulary, o_.seed, o_.noise, weights(s)};
  if (!gpu.possible()) return {};
  return {
      s.T, s.pairs, [gpu, split](const at::Tensor& indices) { return gpu.make(split, indices); }};
}

Batch Mqar::batch(Split split, const std::vector<int64_t>& indices) const {
  const std::vector<int64_t> sizes = segments(split);
  const Segment& s = list(split)[segment_of(sizes, indices)];
  const int64_t B = int64_t(indices.size());
  const int64_t N = o_.vocabulary;
  Batch batch;
  batch.tokens = at::zeros({B, s.T}, at::kLong);
  batch.targets = at::full({B, s.T}, kNoTarget, at::kLong);
  batch.slices["num_kv_pairs"] = at::full({B}, s.pairs, at::kLong);
  batch.slices["length"] = at::full({B}, s.T, at::kLong);
  const std::vector<double> weights = this->weights(s);
  each_example(indices, [&](int64_t row, int64_t index) {
    Random random(uint64_t(o_.seed), split, Stream::content, uint64_t(index));
    int64_t* tokens = batch.tokens.mutable_data_ptr<int64_t>() + row * s.T;
    int64_t* targets = batch.targets.mutable_data_ptr<int64_t>() + row * s.T;
    const auto keys = random.distinct(N / 2 - 1, s.pairs);
    const auto vals = random.distinct(N / 2, s.pairs);
    const auto gaps = random.race(weights, s.pairs);
    for (size_t j = 0; j < size_t(s.pairs); ++j) {
      tokens[2 * j] = 1 + keys[j];
      tokens[2 * j + 1] = N / 2 + vals[j];
      tokens[2 * s.pairs + 2 * gaps[j]] = 1 + keys[j];
      targets[2 * s.pairs + 2 * gaps[j]] = N / 2 + vals[j];
    }
    if (!o_.noise) return;
    Random noise(uint64_t(o_.seed), split, Stream::noise, uint64_t(index));
    for (int64_t t = 0; t < s.T; ++t) {
      if (tokens[t] == 0) tokens[t] = noise.integer(N);
    }
  });
  return batch;
}

// As many pairs for the length as the last segment has.
std::shared_ptr<Task> Mqar::at_length(int64_t T) const {
  Options options = o_;
  const Segment& last = train_.back();
  options.test_T = {T};
  options.test_pairs = {std::max<int64_t>(1, last.pairs * T / last.T)};
  options.vocabulary = std::max(o_.vocabulary, T + 1);
  HORNER_CHECK(
      options.vocabulary == o_.vocabulary,
      "[mqar] length {} needs a vocabulary above it, got {}",
      T,
      o_.vocabulary
  );
  return std::make_shared<Mqar>(options);
}

std::vector<Baseline> Mqar::baselines() const {
  double any = 0;
  for (const Segment& segment : test_) any += 1.0 / double(segment.pairs * int64_t(test_.size()));
  return {
      {"chance", 2.0 / double(o_.vocabulary), "any value of the vocabulary"},
      {"shortcut", any, "any value of the context"}};
}

}  // namespace horner
