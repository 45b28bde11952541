#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "train/autocast.h"
#include "train/sampler.h"

namespace horner {
namespace {

constexpr int64_t kStretches = 32;

at::Tensor on_cpu(const at::Tensor& x, at::ScalarType type) {
  return x.detach().to(at::kCPU, type).contiguous();
}

double mean(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value;
  return sum / double(x.size());
}

}  // namespace

bool smaller_is_better(std::string_view metric) {
  return metric == "loss" || metric == "bits per byte" || metric == "mse";
}

void ScoreSum::add(const Counted& c, const Losses& l) {
  const at::Tensor each = on_cpu(l.each, at::kDouble), places = on_cpu(c.places, at::kLong);
  numbers_ = c.answers.is_floating_point();
  const at::Tensor right =
      numbers_ ? at::zeros_like(each) : on_cpu(l.predictions.argmax(-1) == c.answers, at::kDouble);
  const double* loss = each.const_data_ptr<double>();
  const double* hit = right.const_data_ptr<double>();
  const int64_t* place = places.const_data_ptr<int64_t>();
  const bool labels = c.batch.labels.defined();
  std::vector<double> losses(static_cast<size_t>(c.rows)), hits(losses), counts(losses);
  if (!labels && int64_t(position_loss_.size()) < c.width) {
    position_loss_.resize(size_t(c.width));
    position_count_.resize(size_t(c.width));
  }
  for (int64_t i = 0; i < c.count; ++i) {
    const size_t row = size_t(labels ? place[i] : place[i] / c.width);
    losses[row] += loss[i];
    hits[row] += hit[i];
    counts[row] += 1;
    loss_ += loss[i];
    if (labels) continue;
    position_loss_[size_t(place[i] % c.width)] += loss[i];
    position_count_[size_t(place[i] % c.width)] += 1;
  }
  count_ += c.count;
  bytes_ += c.batch.bytes;
  for (size_t row = 0; row < size_t(c.rows); ++row) {
    if (counts[row] == 0) continue;  // an example in which nothing counts has no score
    accuracy_.push_back(hits[row] / counts[row]);
    right_.push_back(hits[row] == counts[row] ? 1 : 0);
    const double score = metric_ == "accuracy"            ? accuracy_.back()
                         : metric_ == "sequence accuracy" ? right_.back()
                                                          : losses[row] / counts[row];
    by_example_.push_back(score);
    for (const auto& [name, values] : c.batch.slices) {
      const int64_t value = values[int64_t(row)].item<int64_t>();
      Slice& slice = slices_[fmt::format("{}/{}-{}", name, metric_, value)];
      slice.sum += score;
      slice.count += 1;
    }
  }
}

Scores ScoreSum::scores() const {
  Scores s;
  s.examples = int64_t(by_example_.size());
  if (s.examples == 0) return s;
  s.values["loss"] = loss_ / double(count_);
  if (numbers_) {
    s.values["mse"] = s.values["loss"];
  } else {
    s.values["accuracy"] = mean(accuracy_);
    s.values["sequence accuracy"] = mean(right_);
  }
  if (bytes_ > 0) s.values["bits per byte"] = loss_ / std::numbers::ln2 / bytes_;
  for (const auto& [name, slice] : slices_) s.values[name] = slice.sum / double(slice.count);
  s.by_example = by_example_;
  const int64_t T = int64_t(position_loss_.size()), n = std::min(T, kStretches);
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0, count = 0;
    for (int64_t t = T * i / n; t < T * (i + 1) / n; ++t) {
      sum += position_loss_[size_t(t)];
      count += double(position_count_[size_t(t)]);
    }
    s.loss_by_position.push_back(count > 0 ? sum / count : std::nan(""));
  }
  return s;
}

Scores evaluate(
    Model& model, const Task& task, Split split, const EvaluateOptions& o, at::Device device
) {
  const c10::NoGradGuard no_graph;
  const Autocast precision(device, o.bf16);
  const bool training = model.is_training();
  model.eval();
  ScoreSum sum(task.metric());
  for (const auto& indices : batches_of(task, split, o.examples, o.batch)) {
    const Counted batch = to_device(counted(task.batch(split, indices)), device);
    sum.add(batch, losses(model, batch));
  }
  model.train(training);
  return sum.scores();
}

}  // namespace horner
