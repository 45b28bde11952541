#include "train/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <cmath>

#include "core/check.h"
#include "core/device.h"
#include "core/interrupt.h"
#include "train/finite.h"
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
    std::shared_ptr<Processes> processes,
    const Objective* objective
)
    : o_(resolved),
      task_(std::move(task)),
      folder_(folder),
      tell_(tell),
      device_(find_device(local_device(resolved.device))),
      processes_(std::move(processes)),
      objective_(objective),
      model_(std::move(model)),
      optimizer_(
          *model_,
          resolved.optim,
          processes_ ? processes_->share(shard_of(resolved)) : Sharing{},
          device_,
          objective ? objective->rate : RateShare{}
      ),
      gathered_(
          shard_of(resolved) == Shard::full
              ? std::make_unique<GatheredBlocks>(*model_, optimizer_, processes_)
              : nullptr
      ),
      states_(
          resolved.train.sequence_parallel > 1
              ? std::make_unique<PassedStates>(processes_, resolved.train.sequence_parallel)
              : nullptr
      ),
      step_(
          *model_,
          optimizer_,
          resolved,
          device_,
          processes_,
          gathered_.get(),
          states_.get(),
          objective
      ),
      belongs_{{"options", outcome(resolved)}, {"data", data_hash(data_of(*task_))}},
      loss_(std::nan("")),
      norm_(std::nan("")),
      valid_(std::nan("")) {
  std::string newest = first() ? intact_checkpoint(checkpoints(), notes_) : "";
  const int64_t step = newest.empty() ? 0 : step_of(newest);
  const auto agreed = int64_t(over_all({double(step)})[0]);  // what the first process found
  if (agreed > 0) {
    newest = checkpoints() + "/" + checkpoint_name(agreed);
    state_ = load_checkpoint(newest, *model_, optimizer_, belongs_);
    unproved_ = agreed;
    resumed_ = true;
  }
  if (processes_ && !gathered_) processes_->attach(optimizer_);
  step_.begin_at(state_.step);
  if (!objective_)  // else FLOPs are not known
    stated_flops_ =
        stated_flops(device_, o_.train.precision) * double(processes_ ? processes_->world() : 1);
  seconds_before_ = state_.seconds;
  steps_before_ = state_.step;
  tokens_before_ = state_.tokens;
  if (first()) {
    metrics_ = std::make_unique<Metrics>(folder_, state_.lines, o_.log.tensorboard, notes_);
    if (objective_)
      cost_.parameters = model_->parameters_count();
    else
      cost_ = cost_of(o_, *task_);
  }
  start_ = std::chrono::steady_clock::now();
  std::vector<std::string> told = notes_;
  if (resumed_) told.push_back(fmt::format("goes on from step {}", state_.step));
  for (const std::string& note : told) {
    if (!tell_) break;
    TrainTick t = tick();
    t.note = note;
    tell_(t);
  }
}

std::vector<TargetBatch> Trainer::parts(Sampler& sampler, int64_t step) const {
  std::vector<int64_t> indices;
  {
    const std::lock_guard<std::mutex> lock(sampler_mutex_);  // it remembers the order of an epoch
    indices = sampler.at(step);
  }
  const int64_t n = o_.train.sequence_parallel;  // processes with the same examples
  if (processes_) indices = share_of(indices, processes_->rank() / n, processes_->world() / n);
  std::vector<TargetBatch> parts;
  for (int64_t i = 0; i < o_.train.accumulation; ++i) {
    const std::vector<int64_t> own = share_of(indices, i, o_.train.accumulation);
    if (own.empty()) continue;
    if (states_) {
      const TargetBatch whole = find_targets(task_->batch(Split::train, own));
      parts.push_back(part_of_tokens(whole, states_->part(), n));
    } else {
      parts.push_back(training_batch(*task_, own, device_));
    }
  }
  return parts;
}

void Trainer::step(std::vector<TargetBatch> parts) {
  std::vector<double> counts(3, 0);  // what counts, tokens, and whether a process was told to stop
  for (const TargetBatch& part : parts) {
    counts[0] += double(part.count);
    counts[1] += double(part.tokens);
  }
  counts[2] = interrupted() ? 1 : 0;
  counts = over_all(counts);
  leave_ = counts[2] > 0;
  state_.tokens += int64_t(counts[1]);
  step_.run(parts, counts[0]);
  ++state_.step;
}

void Trainer::read_numbers(bool wait) {
  std::vector<Step::Numbers> numbers = step_.read(wait);
  if (numbers.empty()) return;
  std::vector<double> sums;
  for (const Step::Numbers& n : numbers) sums.push_back(n.loss);
  sums = over_all(sums);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i].loss = sums[i];
    check(numbers[i]);
    if (lines_.empty() || lines_.front()["step"] != numbers[i].step + 1) continue;
    Json values = std::move(lines_.front());
    lines_.pop_front();
    values.update({{"train/loss", loss_}, {"lr", lr_}, {"gradient_norm", norm_}});
    metrics_->write(numbers[i].step + 1, values);
  }
}

void Trainer::check(const Step::Numbers& n) {
  loss_ = n.loss / n.count;
  norm_ = n.norm;
  lr_ = n.lr;
  const double limit = kExploded * std::max(1.0, state_.least_loss);
  const bool fine =
      std::isfinite(loss_) && std::isfinite(norm_) && (state_.least_loss == 0 || loss_ <= limit);
  if (fine) {
    if (state_.least_loss == 0 || loss_ < state_.least_loss) state_.least_loss = loss_;
    if (first() && n.step == unproved_) keep_newest(checkpoints(), o_.checkpoint.keep);
    return;
  }
  const std::string aside = first() ? set_diverged_aside(checkpoints(), n.step) : "";
  const std::string good = first() ? newest_checkpoint(checkpoints()) : "";
  throw RunError(
      "step {}: the loss is {:.4g} and the gradient's norm {:.4g}, {}; last good checkpoint: {}{}",
      n.step,
      loss_,
      norm_,
      optimizer_.worst_gradient(),
      good.empty() ? "none" : good,
      aside.empty() ? "" : "; the weights of this loss are in " + aside
  );
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
  t.mfu = stated_flops_ > 0 ? t.tokens_per_second * cost_.flops_per_token / stated_flops_
                            : std::nan("");
  return t;
}

void Trainer::log() {
  if (!first()) return;
  const TrainTick t = tick();
  Json values = {
      {"step", state_.step},
      {"tokens", state_.tokens},
      {"tokens_per_second", t.tokens_per_second},
      {"memory", t.memory},
      {"data_wait", t.data_wait}};
  if (!std::isnan(t.mfu)) values["mfu"] = t.mfu;
  lines_.push_back(std::move(values));
}

Scores Trainer::score(const Task& task, Split split, int64_t batch) {
  const Optimizer::Averaged averaged(optimizer_);
  if (!first() && !gathered_) return {};
  const GatheredBlocks::Open open(gathered_.get());
  EvaluateOptions o{o_.eval.examples, batch, o_.train.precision == "bf16"};
  if (gathered_) {  // every process computes all of it: the blocks are gathered in all of them
    o.keep_weights = o.ask_layers = false;
    o.stop = [this] { return over_all({interrupted() ? 1.0 : 0.0})[0] > 0; };
  }
  return evaluate(*model_, task, split, o, device_);
}

bool Trainer::validate() {
  scored_at_ = state_.step;
  std::vector<double> numbers(2, 0);  // the metric, and whether it was told to stop
  if (first() || shares()) {
    try {
      scores_ = score(*task_, Split::valid, o_.eval.batch > 0 ? o_.eval.batch : o_.train.batch);
    } catch (const InterruptedError&) {
      numbers[1] = 1;
    }
  }
  if (first() && numbers[1] == 0) {
    Json values = {{"tokens", state_.tokens}};
    for (const auto& [name, value] : scores_.values) values["valid/" + name] = value;
    metrics_->write(state_.step, values);
    numbers[0] = scores_.value(task_->metric());
  }
  numbers = over_all(numbers);
  state_.unscored = leave_ = numbers[1] > 0;
  stop_if_interrupted();
  valid_ = numbers[0];
  if (o_.train.target == 0) return false;
  return smaller_is_better(task_->metric()) ? valid_ <= o_.train.target : valid_ >= o_.train.target;
}

void Trainer::save() {
  const auto check = [&] { check_finite(not_finite(*model_, optimizer_), state_.step); };
  shares() ? in_every(processes_.get(), check) : check();  // else all have the same weights
  if (!first() && !shares()) return;
  if (first()) {
    metrics_->sync();
    state_.lines = metrics_->lines();
    state_.seconds = tick().elapsed;
  }
  // The next loss proves these weights. Until then one more is kept, so that a proved one is always there.
  const bool ends = state_.step == o_.schedule.steps || !state_.stopped.empty();
  unproved_ = state_.step;
  save_checkpoint(
      checkpoints(),
      {*model_, optimizer_, processes_.get(), gathered_.get()},
      state_,
      o_.task,
      *task_,
      belongs_,
      o_.checkpoint.keep + (ends ? 0 : 1)
  );
}

void Trainer::stop_if_interrupted() {
  if (!leave_) return;
  if (state_.step == 0)
    throw InterruptedError("stopped before the first step; the same command begins again");
  read_numbers(true);
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

std::vector<TargetBatch> Trainer::next(Prefetch& data) {
  try {
    return data.next();
  } catch (const InterruptedError&) {  // while examples were made
    leave_ = true;
    stop_if_interrupted();
    throw;
  }
}

TrainResult Trainer::run() {
  Sampler sampler(*task_, o_.train.batch);
  const auto due = [&](int64_t every) { return every > 0 && state_.step % every == 0; };
  if (state_.unscored && validate() && state_.step < o_.schedule.steps) state_.stopped = "target";
  if (state_.step < o_.schedule.steps && state_.stopped.empty()) {
    // A step on a GPU leaves the cores to the examples.
    const int64_t threads =
        device_.is_cuda() ? std::clamp<int64_t>(at::get_num_threads() / 2, 1, 4) : 1;
    const auto make = [&](int64_t s) { return parts(sampler, s); };
    Prefetch data(state_.step, o_.schedule.steps, make, threads);
    while (state_.step < o_.schedule.steps && state_.stopped.empty()) {
      const auto asked = std::chrono::steady_clock::now();
      std::vector<TargetBatch> examples = next(data);
      waited_ += seconds_since(asked);
      step(std::move(examples));
      const bool last = state_.step == o_.schedule.steps;
      const bool logs = last || due(o_.log.every);
      const bool scores = !objective_ && (last || due(o_.eval.every));
      if (logs) log();
      if (logs) step_.ask();
      // A GPU is waited for only where a result is written that cannot come later. Several processes read together.
      const bool wait = device_.is_cpu() || last || scores || due(o_.checkpoint.every);
      if (wait || !processes_ || logs) read_numbers(wait || processes_);
      if (scores && validate() && !last) state_.stopped = "target";
      if (last || due(o_.checkpoint.every) || !state_.stopped.empty()) save();
      if (tell_) tell_(tick());
      stop_if_interrupted();
    }
  }
  TrainResult result;
  if (shares()) {
    const Tests tests = test();
    in_first(processes_.get(), [&] { result = finish(tests); });
  } else {
    in_first(processes_.get(), [&] { result = finish(test()); });
  }
  return result;
}

Trainer::Tests Trainer::test() {
  if (objective_) return {};
  const EndOnInterrupt at_once(
      "horner: stopped in the last test; the same command goes on from there\n"
  );
  Tests tests;
  const int64_t batch = o_.eval.batch > 0 ? o_.eval.batch : o_.train.batch;
  tests.valid = scored_at_ == state_.step ? scores_ : score(*task_, Split::valid, batch);
  tests.test = score(*task_, Split::test, batch);
  for (const int64_t T : o_.eval.lengths) {
    const int64_t fit = batch * task_->shape().T / std::max<int64_t>(T, 1);  // as many tokens
    tests.lengths[T] = score(*task_->at_length(T), Split::test, std::clamp<int64_t>(fit, 1, batch));
  }
  return tests;
}

TrainResult Trainer::finish(const Tests& tests) {
  TrainResult r;
  r.folder = folder_;
  r.options = o_;
  r.metric = task_->metric();
  r.steps = state_.step;
  r.tokens = state_.tokens;
  r.resumed = resumed_;
  r.stopped = state_.stopped;
  r.notes = notes_;
  const TrainTick t = tick();
  r.seconds = resumed_ && steps_before_ == state_.step ? state_.seconds : t.elapsed;
  r.tokens_per_second = double(r.tokens) / std::max(r.seconds, 1e-9);
  r.peak_bytes = memory_peak(device_);
  r.parameters = cost_.parameters;
  r.state_bytes = cost_.state_bytes;
  r.flops_per_token = cost_.flops_per_token;
  r.valid = tests.valid;
  r.test = tests.test;
  r.lengths = tests.lengths;
  check_finite(r.valid, "validation", state_.step);
  check_finite(r.test, "test", state_.step);
  Json values = {{"tokens", state_.tokens}};
  for (const auto& [name, value] : r.test.values) values["test/" + name] = value;
  for (const auto& [T, scores] : r.lengths) {
    for (const auto& [name, value] : scores.values)
      values[ScoreName::at_length(T, name).text()] = value;
  }
  metrics_->write(state_.step, values);
  metrics_->sync();
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
