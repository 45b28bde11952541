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

// (tp tn - fp fn) / sqrt((tp+fp)(tp+fn)(tn+fp)(tn+fn))
double matthews(const double (&n)[2][2]) {
  const double product =
      (n[1][1] + n[0][1]) * (n[1][1] + n[1][0]) * (n[0][0] + n[0][1]) * (n[0][0] + n[1][0]);
  return product == 0 ? 0 : (n[1][1] * n[0][0] - n[0][1] * n[1][0]) / std::sqrt(product);
}

}  // namespace

bool smaller_is_better(std::string_view metric) {
  return metric == "loss" || metric == "bits per byte" || metric == "mse";
}

void ScoreSum::add(const TargetBatch& c, const Losses& l) {
  const at::Tensor each = on_cpu(l.each, at::kDouble), places = on_cpu(c.places, at::kLong);
  numbers_ = c.answers.is_floating_point();
  const at::Tensor said = numbers_ ? l.predictions : l.predictions.argmax(-1);
  const at::Tensor right = numbers_ ? at::zeros_like(each) : on_cpu(said == c.answers, at::kDouble);
  const double* loss = each.const_data_ptr<double>();
  const double* hit = right.const_data_ptr<double>();
  const bool labels = c.batch.labels.defined();
  std::vector<double> losses(static_cast<size_t>(c.rows)), hits(losses), counts(losses);
  std::vector<double> unbroken(losses), late(losses), late_counts(losses);
  const at::Tensor lengths = c.batch.lengths.defined() ? on_cpu(c.batch.lengths, at::kLong)
                                                       : at::full({c.rows}, c.width, at::kLong);
  const int64_t* place = places.const_data_ptr<int64_t>();
  const int64_t* length = lengths.const_data_ptr<int64_t>();
  if (!labels && int64_t(position_loss_.size()) < c.width) {
    position_loss_.resize(size_t(c.width));
    position_count_.resize(size_t(c.width));
  }
  for (int64_t i = 0; i < c.count; ++i) {
    const size_t row = size_t(labels ? place[i] : place[i] / c.width);
    losses[row] += loss[i];
    if (hits[row] == counts[row]) unbroken[row] += hit[i];  // places come in order
    hits[row] += hit[i];
    counts[row] += 1;
    loss_ += loss[i];
    if (labels) continue;
    if (4 * (place[i] % c.width) >= 3 * length[row]) {
      late[row] += hit[i];
      late_counts[row] += 1;
    }
    position_loss_[size_t(place[i] % c.width)] += loss[i];
    position_count_[size_t(place[i] % c.width)] += 1;
  }
  count_ += c.count;
  bytes_ += c.batch.bytes;
  if (labels && l.predictions.size(-1) == 2) {
    const at::Tensor answers = on_cpu(c.answers, at::kLong), ours = on_cpu(said, at::kLong);
    for (int64_t i = 0; i < c.count; ++i)
      pairs_[answers[i].item<int64_t>()][ours[i].item<int64_t>()] += 1;
  }
  for (size_t row = 0; row < size_t(c.rows); ++row) {
    if (counts[row] == 0) continue;  // an example in which nothing counts has no score
    accuracy_.push_back(hits[row] / counts[row]);
    right_.push_back(hits[row] == counts[row] ? 1 : 0);
    if (counts[row] > 1) first_error_.push_back(unbroken[row]);
    if (late_counts[row] > 0) late_.push_back(late[row] / late_counts[row]);
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

void ScoreSum::add_free(const at::Tensor& right) {
  const at::Tensor share = on_cpu(right, at::kDouble).mean(1);
  for (int64_t row = 0; row < share.size(0); ++row) {
    free_.push_back(share[row].item<double>());
    free_right_.push_back(free_.back() == 1 ? 1 : 0);
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
    const auto add = [&](const char* name, const std::vector<double>& values) {
      if (!values.empty()) s.values[name] = mean(values);
    };
    if (metric_ == "accuracy" || metric_ == "sequence accuracy") {
      add("first error", first_error_);
      add("late accuracy", late_);
    }
    add("free-running accuracy", free_);
    add("free-running sequence accuracy", free_right_);
    if (pairs_[0][0] + pairs_[0][1] + pairs_[1][0] + pairs_[1][1] > 0)
      s.values["matthews"] = matthews(pairs_);
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

at::Tensor run_free(Model& model, const at::Tensor& tokens, int64_t n) {
  ModelState state;
  std::vector<at::Tensor> said;
  at::Tensor input = tokens.narrow(1, 0, tokens.size(1) - n + 1);
  for (int64_t i = 0; i < n; ++i) {
    const at::Tensor hidden = model.hidden(input, state);
    input = model.logits(hidden.select(1, hidden.size(1) - 1)).argmax(-1, true);
    said.push_back(input);
  }
  return at::cat(said, 1);
}

Scores evaluate(
    Model& model, const Task& task, Split split, const EvaluateOptions& o, at::Device device
) {
  const c10::NoGradGuard no_graph;
  const Autocast precision(device, o.bf16);
  const bool training = model.is_training();
  model.eval();
  ScoreSum sum(task.metric());
  const int64_t answers = task.free_running();
  for (const auto& indices : batches_of(task, split, o.examples, o.batch)) {
    const TargetBatch batch = to_device(find_targets(task.batch(split, indices)), device);
    sum.add(batch, losses(model, batch));
    if (answers > 0 && model.causal()) {
      const at::Tensor right = batch.answers.view({batch.rows, answers});
      sum.add_free(run_free(model, batch.batch.tokens, answers) == right);
    }
  }
  model.train(training);
  return sum.scores();
}

}  // namespace horner
