#include "train/step.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <thread>

#include "core/initial.h"
#include "train/autocast.h"
#include "train/schedule.h"

namespace horner {
namespace {

// What decides which kernels run: sizes, dtypes, and whether every position has a target.
std::vector<int64_t> key_of(const std::vector<TargetBatch>& parts, const Context& context) {
  std::vector<int64_t> key = {context.window.value_or(-1)};
  for (const TargetBatch& part : parts) {
    const bool all = part.count == part.rows * part.width;
    key.insert(key.end(), {part.rows, part.width, part.weights.defined() ? all : part.count});
    for (const at::Tensor* x : part.tensors()) {
      key.push_back(x->defined() ? int64_t(x->scalar_type()) : -1);
      if (x->defined()) key.insert(key.end(), x->sizes().begin(), x->sizes().end());
    }
  }
  return key;
}

// Copies what differs between steps into the tensors that the graph reads. Where every position has a target, or every row,
// their places are the same in every step.
void fill(std::vector<TargetBatch>& inputs, const std::vector<TargetBatch>& parts) {
  const c10::NoGradGuard no_graph;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto from = parts[i].tensors();
    const auto to = inputs[i].tensors();
    const bool all =
        parts[i].count == parts[i].rows * parts[i].width || parts[i].batch.labels.defined();
    for (size_t j = 0; j < from.size(); ++j) {
      if (!from[j]->defined() || (all && from[j] == &parts[i].places)) continue;
      to[j]->copy_(*from[j], true);
    }
  }
}

}  // namespace

Step::Step(
    Model& model,
    Optimizer& optimizer,
    const TrainOptions& resolved,
    at::Device device,
    std::shared_ptr<Processes> processes,
    GatheredBlocks* gathered,
    PassedStates* states,
    const Objective* objective
)
    : model_(model),
      optimizer_(optimizer),
      o_(resolved),
      device_(device),
      processes_(std::move(processes)),
      gathered_(gathered),
      states_(states),
      objective_(objective),
      bf16_(resolved.train.precision == "bf16") {
  std::vector<double> rates;
  for (int64_t s = 0; s < o_.schedule.steps; ++s)
    rates.push_back(o_.optim.lr * schedule_share(o_.schedule, s));
  rates_ = at::tensor(rates, at::kDouble).to(device_, Optimizer::rate_type(device_));
  number_ = at::zeros({1}, at::device(device_).dtype(at::kLong));
  share_ = at::zeros({}, at::device(device_).dtype(at::kFloat));
  numbers_ = at::zeros({kRing, 2}, at::device(device_).dtype(at::kFloat));
  arrived_ = numbers_;
  if (!device_.is_cuda()) return;
  arrived_ = at::zeros({kRing, 2}, at::TensorOptions().dtype(at::kFloat).pinned_memory(true));
  copied_.emplace(device_.type());
  for (int64_t i = 0; i < kAhead; ++i) ends_.emplace_back(device_.type());
}

Step::~Step() {
  if (!device_.is_cuda()) return;
  try {  // the graphs may be running
    c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).synchronize();
  } catch (const std::exception&) {
    // A broken GPU has failed the run already; its error is on the way.
  }
}

void Step::begin_at(int64_t step) {
  number_.fill_(step);
  next_ = step;
}

void Step::work(const std::vector<TargetBatch>& parts, const Context& context) {
  optimizer_.zero_gradients();
  if (gathered_ != nullptr) gathered_->open(true);
  const bool reduces = processes_ && gathered_ == nullptr;
  const at::Tensor sum = at::zeros({}, at::device(device_).dtype(at::kFloat));
  std::optional<PassedStates::Passing> passing;
  if (states_ != nullptr) passing.emplace(*states_, model_);
  for (size_t i = 0; i < parts.size(); ++i) {
    at::Tensor loss;
    {
      const Autocast precision(device_, bf16_, false);
      const TargetBatch made = parts[i].made();
      loss = objective_ ? objective_->loss(made, context) : loss_sum(model_, made, context);
    }
    if (reduces && i + 1 == parts.size()) processes_->begin();
    torch::autograd::backward({loss * share_}, {});
    sum.add_(loss.detach());
  }
  if (states_ != nullptr) states_->finish();
  if (gathered_ != nullptr) gathered_->close();
  if (reduces) {
    if (parts.empty()) processes_->begin();  // a process without examples adds nothing
    processes_->end();
  }
  const c10::NoGradGuard no_graph;
  const at::Tensor norm = optimizer_.step(rates_.index_select(0, number_));
  numbers_.index_copy_(0, number_.remainder(kRing), at::stack({sum, norm}).unsqueeze(0));
  number_.add_(1);
}

bool Step::can_record(const std::vector<TargetBatch>& parts) const {
  if (!device_.is_cuda() || replay_kernels().record == nullptr || processes_) return false;
  // A recomputed block sets the state of the generator, which a graph does not allow.
  if (o_.train.checkpoint_activations && o_.model.dropout > 0) return false;
  for (const TargetBatch& part : parts) {
    if (part.batch.cu_seqlens.defined()) return false;
    if (part.batch.lengths.defined() && !model_.causal()) return false;  // packed by the model
  }
  return true;
}

void Step::run_or_replay(const std::vector<TargetBatch>& parts, const Context& context) {
  const auto on_device = [&] {
    std::vector<TargetBatch> all;
    for (const TargetBatch& part : parts) all.push_back(to_device(part, device_));
    return all;
  };
  if (!can_record(parts)) return work(on_device(), context);
  const Key key = key_of(parts, context);
  // A task whose shapes keep changing would fill the memory with keys.
  if (!shapes_.contains(key) && shapes_.size() >= 64) return work(on_device(), context);
  Shape& shape = shapes_[key];
  if (shape.graph) {
    fill(shape.inputs, parts);
    shape.graph->run();
    ++replayed_;
    return;
  }
  size_t graphs = 0;
  const Replay* beside = nullptr;
  for (const auto& [other, known] : shapes_) {
    graphs += known.graph ? 1 : 0;
    if (known.graph) beside = known.graph.get();
  }
  if (shape.fails || ++shape.seen <= kWarm || graphs >= kMostGraphs)
    return work(on_device(), context);
  shape.inputs = on_device();
  shape.graph = replay_kernels().record([&] { work(shape.inputs, context); }, reason_, beside);
  shape.fails = shape.graph == nullptr;
  if (shape.fails) return work(shape.inputs, context);
  shape.graph->run();
  ++replayed_;
}

// A run that starts loads kernels, and each load waits for all that was launched before, by any run. So a run must not launch
// far ahead. It sleeps instead of spinning: the cores may be busy with the other runs.
void Step::wait_for_pace() {
  if (ends_.empty()) return;
  const c10::Event& before = ends_[size_t(next_ % kAhead)];
  while (!before.query()) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

void Step::run(const std::vector<TargetBatch>& parts, double count) {
  wait_for_pace();
  if (o_.model.dropout > 0)  // the same after a resume
    at::manual_seed(mix(mix(uint64_t(o_.seed), "dropout"), uint64_t(next_)));
  Context context;
  context.recompute = o_.train.checkpoint_activations;
  if (o_.train.stochastic_window)
    context.window = o_.train.window.at(next_, o_.schedule.steps, uint64_t(o_.seed));
  if (int64_t(unread_.size()) >= kRing / 2) ask();
  if (int64_t(unread_.size()) == kRing) collect(true);  // one more would overwrite the oldest
  share_.fill_(1 / count);
  run_or_replay(parts, context);
  if (!ends_.empty())
    ends_[size_t(next_ % kAhead)].record(
        c10::impl::VirtualGuardImpl(device_.type()).getStream(device_)
    );
  const double lr = o_.optim.lr * schedule_share(o_.schedule, next_);
  unread_.push_back({next_, 0, count, 0, lr});
  ++next_;
}

void Step::ask() {
  if (asked_ > 0 || unread_.empty()) return;
  asked_ = next_;
  if (!copied_) return;
  arrived_.copy_(numbers_, true);
  copied_->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void Step::collect(bool wait) {
  if (asked_ == 0) return;
  if (copied_ && wait) copied_->synchronize();
  if (copied_ && !copied_->query()) return;
  const float* row = arrived_.const_data_ptr<float>();
  for (; !unread_.empty() && unread_.front().step < asked_; unread_.pop_front()) {
    Numbers n = unread_.front();
    n.loss = row[n.step % kRing * 2];
    n.norm = row[n.step % kRing * 2 + 1];
    ready_.push_back(n);
  }
  asked_ = 0;
}

std::vector<Step::Numbers> Step::read(bool wait) {
  collect(wait);
  if (wait) {
    ask();
    collect(true);
  }
  return std::exchange(ready_, {});
}

}  // namespace horner
