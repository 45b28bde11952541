#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "core/interrupt.h"
#include "train/autocast.h"
#include "train/sampler.h"

namespace horner {
namespace {

constexpr int64_t kStretches = 32;

at::Tensor on_cpu(const at::Tensor& x, at::ScalarType type) {
  return x.detach().to(at::kCPU, type).contiguous();
}

void check_stop(const std::function<bool()>& stop) {
  if (stop()) throw InterruptedError("stopped in an evaluation");
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
  const at::Tensor each = on_cpu(l.each, at::kDouble);
  numbers_ = c.answers.is_floating_point();
  const at::Tensor said = numbers_ ? l.predictions : l.predictions.argmax(-1);
  const at::Tensor right = numbers_ ? at::zeros_like(each) : on_cpu(said == c.answers, at::kDouble);
  const std::vector<Example> examples = add_targets(c, each, right);
  count_ += c.count;
  bytes_ += c.batch.bytes;
  if (c.batch.labels.defined() && l.predictions.size(-1) == 2) {
    const at::Tensor answers = on_cpu(c.answers, at::kLong), ours = on_cpu(said, at::kLong);
    for (int64_t i = 0; i < c.count; ++i)
      pairs_[answers[i].item<int64_t>()][ours[i].item<int64_t>()] += 1;
  }
  // Examples share the bytes of their batch by their targets.
  const double unit = metric_ == "bits per byte" && c.batch.bytes > 0
                          ? double(c.count) / c.batch.bytes / std::numbers::ln2
                          : 1;
  for (size_t row = 0; row < examples.size(); ++row) {
    if (examples[row].count == 0) continue;  // an example in which nothing counts has no score
    const double score = add_example(examples[row], unit);
    for (const auto& [name, values] : c.batch.slices) {
      const int64_t value = values[int64_t(row)].item<int64_t>();
      Slice& slice = slices_[fmt::format("{}/{}-{}", name, metric_, value)];
      slice.sum += score;
      slice.count += 1;
    }
  }
}

std::vector<ScoreSum::Example> ScoreSum::add_targets(
    const TargetBatch& c, const at::Tensor& each, const at::Tensor& right
) {
  const bool labels = c.batch.labels.defined();
  const at::Tensor places = on_cpu(c.places, at::kLong);
  const at::Tensor lengths = c.batch.lengths.defined() ? on_cpu(c.batch.lengths, at::kLong)
                                                       : at::full({c.rows}, c.width, at::kLong);
  const double* loss = each.const_data_ptr<double>();
  const double* hit = right.const_data_ptr<double>();
  const int64_t* place = places.const_data_ptr<int64_t>();
  const int64_t* length = lengths.const_data_ptr<int64_t>();
  if (!labels && int64_t(position_loss_.size()) < c.width) {
    position_loss_.resize(size_t(c.width));
    position_count_.resize(size_t(c.width));
  }
  std::vector<Example> examples(static_cast<size_t>(c.rows));
  for (int64_t i = 0; i < c.count; ++i) {
    const int64_t row = labels ? place[i] : place[i] / c.width;
    Example& example = examples[size_t(row)];
    example.loss += loss[i];
    if (example.hits == example.count) example.unbroken += hit[i];  // places come in order
    example.hits += hit[i];
    example.count += 1;
    loss_ += loss[i];
    if (labels) continue;
    const int64_t t = place[i] % c.width;
    if (4 * t >= 3 * length[row]) {
      example.late_hits += hit[i];
      example.late_count += 1;
    }
    position_loss_[size_t(t)] += loss[i];
    position_count_[size_t(t)] += 1;
  }
  return examples;
}

double ScoreSum::add_example(const Example& example, double unit) {
  accuracy_.push_back(example.hits / example.count);
  right_.push_back(example.hits == example.count ? 1 : 0);
  if (example.count > 1) first_error_.push_back(example.unbroken);
  if (example.late_count > 0) late_.push_back(example.late_hits / example.late_count);
  by_example_.push_back(
      metric_ == "accuracy"            ? accuracy_.back()
      : metric_ == "sequence accuracy" ? right_.back()
                                       : example.loss / example.count * unit
  );
  return by_example_.back();
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

at::Tensor run_free(
    Model& model, const at::Tensor& tokens, int64_t n, const std::function<bool()>& stop
) {
  ModelState state;
  std::vector<at::Tensor> said;
  at::Tensor input = tokens.narrow(1, 0, tokens.size(1) - n + 1);
  for (int64_t i = 0; i < n; ++i) {
    check_stop(stop);
    const at::Tensor hidden = model.hidden(input, state);
    input = model.logits(hidden.select(1, hidden.size(1) - 1)).argmax(-1, true);
    said.push_back(input);
  }
  return at::cat(said, 1);
}

namespace {

// Rows of a batch, so few that a CPU computes a layer of them in less than a second; a packed batch is one row.
std::vector<TargetBatch> pieces_of(const TargetBatch& c, at::Device device) {
  constexpr int64_t kTokens = 4096;
  const int64_t rows = std::max<int64_t>(1, kTokens / std::max<int64_t>(1, c.width));
  if (!device.is_cpu() || rows >= c.rows) return {c};
  const int64_t each = c.batch.labels.defined() ? 1 : c.width;  // places of a row
  const int64_t* place = c.places.const_data_ptr<int64_t>();
  std::vector<TargetBatch> pieces;
  for (int64_t row = 0, first = 0; row < c.rows; row += rows) {
    TargetBatch p;
    p.rows = std::min(rows, c.rows - row);
    p.width = c.width;
    while (first + p.count < c.count && place[first + p.count] < (row + p.rows) * each) ++p.count;
    p.places = c.places.narrow(0, first, p.count) - row * each;
    p.answers = c.answers.narrow(0, first, p.count);
    for (const auto part : {&Batch::tokens, &Batch::features, &Batch::lengths, &Batch::labels})
      if ((c.batch.*part).defined()) p.batch.*part = (c.batch.*part).narrow(0, row, p.rows);
    first += p.count;
    pieces.push_back(std::move(p));
  }
  return pieces;
}

// While it lives, the model asks between the layers of a forward.
class AskBetweenLayers : public BlockWatch {
 public:
  AskBetweenLayers(Model& model, const std::function<bool()>& stop) : model_(model), stop_(stop) {
    model_.watch(this);
  }
  AskBetweenLayers(const AskBetweenLayers&) = delete;
  AskBetweenLayers& operator=(const AskBetweenLayers&) = delete;
  ~AskBetweenLayers() override { model_.watch(nullptr); }
  void enter(int64_t, at::Tensor&, at::Tensor&, State&) override { check_stop(stop_); }
  void leave(int64_t, at::Tensor&, at::Tensor&, State&) override {}

 private:
  Model& model_;
  const std::function<bool()>& stop_;
};

}  // namespace

Scores evaluate(
    Model& model, const Task& task, Split split, const EvaluateOptions& o, at::Device device
) {
  const c10::NoGradGuard no_graph;
  const Autocast precision(device, o.bf16, o.keep_weights);
  const bool training = model.is_training();
  model.eval();
  ScoreSum sum(task.metric());
  std::optional<AskBetweenLayers> ask;
  if (o.ask_layers) ask.emplace(model, o.stop);
  const int64_t answers = task.free_running();
  for (const auto& indices : batches_of(task, split, o.examples, o.batch)) {
    check_stop(o.stop);
    const TargetBatch batch = to_device(find_targets(task.batch(split, indices)), device);
    std::vector<at::Tensor> each, predictions;
    for (const TargetBatch& piece : pieces_of(batch, device)) {
      check_stop(o.stop);
      const Losses l = losses(model, piece);
      each.push_back(l.each);
      predictions.push_back(l.predictions);
      if (answers == 0 || !model.causal()) continue;
      const at::Tensor right = piece.answers.view({piece.rows, answers});
      sum.add_free(run_free(model, piece.batch.tokens, answers, o.stop) == right);
    }
    const bool whole = each.size() == 1;
    sum.add(
        batch, {whole ? each[0] : at::cat(each), whole ? predictions[0] : at::cat(predictions)}
    );
  }
  model.train(training);
  return sum.scores();
}

}  // namespace horner
