#include "train/trainer.h"

#include <ATen/Context.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "core/check.h"
#include "core/device.h"
#include "core/initial.h"
#include "core/interrupt.h"
#include "train/autocast.h"
#include "train/schedule.h"
#include "train/score.h"

namespace horner {
namespace {

constexpr double kExploded = 1000;  // times the smallest loss so far, or 1

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Trainer::Trainer(
    const TrainOptions& resolved,
    std::shared_ptr<Task> task,
    std::shared_ptr<Model> model,
    const std::string& folder,
    const TrainTell& tell,
    std::shared_ptr<Processes> processes
)
    : o_(resolved),
      task_(std::move(task)),
      folder_(folder),
      tell_(tell),
      device_(find_device(local_device(resolved.device))),
      processes_(std::move(processes)),
      model_(std::move(model)),
      optimizer_(*model_, resolved.optim),
      loss_(std::nan("")),
      norm_(std::nan("")),
      valid_(std::nan("")) {
  const std::string folder_of_all = folder_ + "/checkpoints";
  std::string newest = first() ? newest_checkpoint(folder_of_all) : "";
  const int64_t step = newest.empty() ? 0 : std::stoll(newest.substr(newest.rfind("step_") + 5));
  const auto agreed = int64_t(over_all({double(step)})[0]);  // what the first process found
  if (agreed > 0) {
    newest = folder_of_all + "/" + checkpoint_name(agreed);
    state_ = load_checkpoint(newest, *model_, optimizer_);
    resumed_ = true;
  }
  if (processes_) processes_->attach(optimizer_);
  seconds_before_ = state_.seconds;
  steps_before_ = state_.step;
  tokens_before_ = state_.tokens;
  if (first()) {
    metrics_ = std::make_unique<Metrics>(folder_, state_.lines, o_.log.tensorboard);
    cost_ = cost_of(o_, *task_);
  }
  start_ = std::chrono::steady_clock::now();
}

std::vector<TargetBatch> Trainer::parts(Sampler& sampler, int64_t step) const {
  std::vector<int64_t> indices = sampler.at(step);
  if (processes_) indices = share_of(indices, processes_->rank(), processes_->world());
  std::vector<TargetBatch> parts;
  for (int64_t i = 0; i < o_.train.accumulation; ++i) {
    const std::vector<int64_t> own = share_of(indices, i, o_.train.accumulation);
    if (!own.empty())
      parts.push_back(to_device(find_targets(task_->batch(Split::train, own)), device_));
  }
  return parts;
}

void Trainer::step(std::vector<TargetBatch> parts) {
  const int64_t s = state_.step;
  if (o_.model.dropout > 0)
    at::manual_seed(mix(mix(uint64_t(o_.seed), "dropout"), uint64_t(s))
    );  // the same after a resume
  Context context;
  context.recompute = o_.train.checkpoint_activations;
  if (o_.train.stochastic_window)
    context.window = o_.train.window.at(s, o_.schedule.steps, uint64_t(o_.seed));
  std::vector<double> counts(3, 0);  // what counts, tokens, and whether a process was told to stop
  for (const TargetBatch& part : parts) {
    counts[0] += double(part.count);
    counts[1] += double(part.tokens);
  }
  counts[2] = interrupted() ? 1 : 0;
  counts = over_all(counts);
  leave_ = counts[2] > 0;
  state_.tokens += int64_t(counts[1]);
  optimizer_.zero_gradients();
  at::Tensor sum = at::zeros({}, at::device(device_).dtype(at::kFloat));
  for (size_t i = 0; i < parts.size(); ++i) {
    at::Tensor loss;
    {
      const Autocast precision(device_, o_.train.precision == "bf16");
      loss = losses(*model_, parts[i], context).each.sum();
    }
    if (processes_ && i + 1 == parts.size()) processes_->begin();
    torch::autograd::backward({loss * (1 / counts[0])}, {});
    sum += loss.detach();
  }
  if (processes_) {
    if (parts.empty()) processes_->begin();  // a process without examples adds nothing
    processes_->end();
  }
  const double lr = o_.optim.lr * schedule_share(o_.schedule, s);
  pending_.push_back({s, sum, optimizer_.step(lr), counts[0], lr});
  state_.step = s + 1;
}

void Trainer::read_pending() {
  if (pending_.empty()) return;
  std::vector<double> sums;
  for (const Pending& p : pending_) sums.push_back(p.loss.item<double>());
  sums = over_all(sums);
  for (size_t i = 0; i < pending_.size(); ++i) {
    const Pending& p = pending_[i];
    loss_ = sums[i] / p.count;
    norm_ = p.norm.item<double>();
    lr_ = p.lr;
    const double limit = kExploded * std::max(1.0, state_.least_loss);
    const bool fine =
        std::isfinite(loss_) && std::isfinite(norm_) && (state_.least_loss == 0 || loss_ <= limit);
    if (fine) {
      if (state_.least_loss == 0 || loss_ < state_.least_loss) state_.least_loss = loss_;
      continue;
    }
    const std::string good = first() ? newest_checkpoint(folder_ + "/checkpoints") : "";
    throw RunError(
        "step {}: the loss is {:.4g} and the gradient's norm {:.4g}, {}; last good checkpoint: {}",
        p.step,
        loss_,
        norm_,
        optimizer_.worst_gradient(),
        good.empty() ? "none" : good
    );
  }
  pending_.clear();
}

TrainTick Trainer::tick() const {
  TrainTick t{};
  t.step = state_.step;
  t.steps = o_.schedule.steps;
  t.loss = loss_;
  t.valid = valid_;
  t.lr = lr_;
  t.gradient_norm = norm_;
  const double here = seconds_since(start_);
  t.elapsed = seconds_before_ + here;
  t.tokens_per_second = double(state_.tokens - tokens_before_) / std::max(here, 1e-9);
  const int64_t done = state_.step - steps_before_;
  t.left = done == 0 ? 0 : here / double(done) * double(t.steps - t.step);
  t.memory = memory_now(device_);
  t.data_wait = waited_ / std::max(here, 1e-9);
  const double stated =
      stated_flops(device_, o_.train.precision) * double(processes_ ? processes_->world() : 1);
  t.mfu = stated > 0 ? t.tokens_per_second * cost_.flops_per_token / stated : std::nan("");
  return t;
}

void Trainer::log() {
  if (!first()) return;
  const TrainTick t = tick();
  Json values = {
      {"tokens", state_.tokens},
      {"train/loss", loss_},
      {"lr", lr_},
      {"gradient_norm", norm_},
      {"tokens_per_second", t.tokens_per_second},
      {"memory", t.memory},
      {"data_wait", t.data_wait}};
  if (!std::isnan(t.mfu)) values["mfu"] = t.mfu;
  metrics_->write(state_.step, values);
}

Scores Trainer::score(const Task& task, Split split, int64_t batch) {
  const Optimizer::Averaged averaged(optimizer_);
  return evaluate(
      *model_, task, split, {o_.eval.examples, batch, o_.train.precision == "bf16"}, device_
  );
}

bool Trainer::validate() {
  scored_at_ = state_.step;
  double metric = 0;
  if (first()) {
    scores_ = score(*task_, Split::valid, o_.eval.batch > 0 ? o_.eval.batch : o_.train.batch);
    Json values = {{"tokens", state_.tokens}};
    for (const auto& [name, value] : scores_.values) values["valid/" + name] = value;
    metrics_->write(state_.step, values);
    metric = scores_.value(task_->metric());
  }
  valid_ = over_all({metric})[0];
  if (o_.train.target == 0) return false;
  return smaller_is_better(task_->metric()) ? valid_ <= o_.train.target : valid_ >= o_.train.target;
}

void Trainer::save() {
  if (!first()) return;
  state_.lines = metrics_->lines();
  state_.seconds = tick().elapsed;
  save_checkpoint(
      folder_ + "/checkpoints", *model_, optimizer_, state_, o_.task, *task_, o_.checkpoint.keep
  );
}

void Trainer::stop_if_interrupted() {
  if (!leave_) return;
  read_pending();
  save();
  throw InterruptedError(
      "stopped at step {} of {}, which {}/checkpoints/{} holds; the same command goes on from "
      "there",
      state_.step,
      o_.schedule.steps,
      folder_,
      checkpoint_name(state_.step)
  );
}

TrainResult Trainer::run() {
  Sampler sampler(*task_, o_.train.batch);
  const auto due = [&](int64_t every) { return every > 0 && state_.step % every == 0; };
  if (state_.step < o_.schedule.steps && state_.stopped.empty()) {
    Prefetch data(state_.step, o_.schedule.steps, [&](int64_t s) { return parts(sampler, s); });
    while (state_.step < o_.schedule.steps && state_.stopped.empty()) {
      const auto asked = std::chrono::steady_clock::now();
      std::vector<TargetBatch> examples = data.next();
      waited_ += seconds_since(asked);
      step(std::move(examples));
      const bool last = state_.step == o_.schedule.steps;
      const bool logs = last || due(o_.log.every), scores = last || due(o_.eval.every);
      // Numbers are read from a GPU only when they are wanted.
      if (device_.is_cpu() || logs || scores || due(o_.checkpoint.every)) read_pending();
      if (logs) log();
      if (scores && validate() && !last) state_.stopped = "target";
      if (last || due(o_.checkpoint.every) || !state_.stopped.empty()) save();
      if (tell_) tell_(tick());
      stop_if_interrupted();
    }
  }
  return first() ? finish() : TrainResult{};
}

TrainResult Trainer::finish() {
  TrainResult r;
  r.folder = folder_;
  r.options = o_;
  r.metric = task_->metric();
  r.steps = state_.step;
  r.tokens = state_.tokens;
  r.resumed = resumed_;
  r.stopped = state_.stopped;
  const TrainTick t = tick();
  r.seconds = resumed_ && steps_before_ == state_.step ? state_.seconds : t.elapsed;
  r.tokens_per_second = double(r.tokens) / std::max(r.seconds, 1e-9);
  r.peak_bytes = memory_peak(device_);
  r.parameters = cost_.parameters;
  r.state_bytes = cost_.state_bytes;
  r.flops_per_token = cost_.flops_per_token;
  const int64_t batch = o_.eval.batch > 0 ? o_.eval.batch : o_.train.batch;
  r.valid = scored_at_ == state_.step ? scores_ : score(*task_, Split::valid, batch);
  r.test = score(*task_, Split::test, batch);
  for (const int64_t T : o_.eval.lengths) {
    const int64_t fit = batch * task_->shape().T / std::max<int64_t>(T, 1);  // as many tokens
    r.lengths[T] = score(*task_->at_length(T), Split::test, std::clamp<int64_t>(fit, 1, batch));
  }
  Json values = {{"tokens", state_.tokens}};
  for (const auto& [name, value] : r.test.values) values["test/" + name] = value;
  for (const auto& [T, scores] : r.lengths) {
    for (const auto& [name, value] : scores.values)
      values[ScoreName::at_length(T, name).text()] = value;
  }
  metrics_->write(state_.step, values);
  for (const Json& line : metrics_->all()) {
    const int64_t step = line["step"];
    const auto get = [&](const std::string& key) {
      return line.contains(key) && line[key].is_number() ? line[key].get<double>() : std::nan("");
    };
    const double loss = get("train/loss"), valid = get("valid/" + r.metric);
    if (std::isnan(loss) && std::isnan(valid)) continue;
    if (!r.curve.empty() && r.curve.back().step == step) {
      if (!std::isnan(valid)) r.curve.back().valid = valid;
    } else {
      r.curve.push_back({step, loss, valid});
    }
  }
  r.finished = true;
  return r;
}

}  // namespace horner
