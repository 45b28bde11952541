#include "train/sampler.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"

namespace horner {

Sampler::Sampler(const Task& task, int64_t batch)
    : batch_(batch), sizes_(task.segments(Split::train)) {
  HORNER_CHECK(batch >= 1, "[train] batch must be at least 1, got {}", batch);
  const Json options = task.options();
  if (options.contains("seed")) seed_ = options["seed"].get<uint64_t>();
  for (const int64_t size : sizes_) {
    HORNER_CHECK(size >= 1, "[train] the task has no training example");
    HORNER_CHECK(size != kEndless || sizes_.size() == 1, "[train] only one segment can be endless");
    steps_ = size == kEndless ? kEndless : steps_ + (size + batch - 1) / batch;
  }
}

std::vector<int64_t> Sampler::at(int64_t step) {
  std::vector<int64_t> indices(static_cast<size_t>(batch_));
  if (steps_ == kEndless) {
    std::iota(indices.begin(), indices.end(), step * batch_);
    return indices;
  }
  const int64_t epoch = step / steps_;
  int64_t rest = step % steps_, start = 0;
  size_t segment = 0;
  for (;; ++segment) {
    const int64_t steps = (sizes_[segment] + batch_ - 1) / batch_;
    if (rest < steps) break;
    rest -= steps;
    start += sizes_[segment];
  }
  if (epoch != epoch_ || segment != segment_ || order_.empty()) {
    order_ = permutation(seed_, Split::train, uint32_t(epoch), sizes_[segment]);
    epoch_ = epoch;
    segment_ = segment;
  }
  const int64_t first = rest * batch_, last = std::min(first + batch_, sizes_[segment]);
  indices.assign(order_.begin() + first, order_.begin() + last);
  for (int64_t& index : indices) index += start;
  return indices;
}

std::vector<int64_t> share_of(const std::vector<int64_t>& indices, int64_t rank, int64_t world) {
  const int64_t n = int64_t(indices.size());
  return {indices.begin() + n * rank / world, indices.begin() + n * (rank + 1) / world};
}

std::vector<std::vector<int64_t>> batches_of(
    const Task& task, Split split, int64_t n, int64_t batch
) {
  const std::vector<int64_t> sizes = task.segments(split);
  std::vector<std::vector<int64_t>> batches;
  int64_t start = 0;
  for (size_t s = 0; s < sizes.size(); ++s) {
    HORNER_CHECK(n > 0 || sizes[s] != kEndless, "[eval] an endless split needs eval.examples");
    // Of each segment its share of n.
    const int64_t wanted = n == 0 ? sizes[s] : std::max<int64_t>(1, n / int64_t(sizes.size()));
    const int64_t end = start + std::min(sizes[s], wanted);
    for (int64_t first = start; first < end; first += batch) {
      std::vector<int64_t> indices(static_cast<size_t>(std::min(batch, end - first)));
      std::iota(indices.begin(), indices.end(), first);
      batches.push_back(std::move(indices));
    }
    start += sizes[s];
  }
  return batches;
}

}  // namespace horner
