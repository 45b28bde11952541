#include "train/gathered.h"

#include <torch/csrc/autograd/custom_function.h>

#include "train/memory.h"

namespace horner {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Call : torch::CustomClassHolder {
  Call(GatheredBlocks* b, int64_t u, bool e) : blocks(b), unit(u), ends(e) {}
  GatheredBlocks* blocks;
  int64_t unit;
  bool ends;  // the backward of this unit ends here; else it begins
};

// Hands its inputs on.
struct Mark : torch::autograd::Function<Mark> {
  static variable_list forward(
      AutogradContext* ctx, const c10::intrusive_ptr<Call>& call, at::TensorList xs
  ) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    return xs.vec();
  }
  static variable_list backward(AutogradContext* ctx, variable_list dxs) {
    const auto held = ctx->saved_data["call"].toCapsule();
    const Call& call = static_cast<const Call&>(*held);
    if (call.ends)
      call.blocks->end_backward(call.unit);
    else
      call.blocks->begin_backward(call.unit);
    dxs.insert(dxs.begin(), at::Tensor());  // of the call
    return dxs;
  }
};

void mark(at::Tensor& x, at::Tensor& delta, const c10::intrusive_ptr<Call>& call) {
  variable_list xs = {x};
  if (delta.defined()) xs.push_back(delta);
  const variable_list ys = Mark::apply(call, at::TensorList(xs));
  x = ys[0];
  if (delta.defined()) delta = ys[1];
}

}  // namespace

GatheredBlocks::GatheredBlocks(
    Model& model, Optimizer& optimizer, std::shared_ptr<Processes> processes
)
    : model_(model), processes_(std::move(processes)) {
  units_.resize(size_t(model.options().layers) + 1);
  for (Optimizer::Group& group : optimizer.groups()) {
    for (Optimizer::Stretch& stretch : group.stretches)
      units_.at(size_t(stretch.unit)).push_back({&group, &stretch, {}, {}, {}, {}});
  }
  model_.watch(this);
}

GatheredBlocks::~GatheredBlocks() { model_.watch(nullptr); }

void GatheredBlocks::begin_gather(int64_t unit) {
  if (unit < 0 || unit >= int64_t(units_.size())) return;
  for (Stretch& s : units_[size_t(unit)]) {
    if (s.gathering) continue;
    take_memory(s.of->whole);
    s.gathering = processes_->all_gather(s.of->whole, s.of->weights);
  }
}

void GatheredBlocks::gather(int64_t unit) {
  begin_gather(unit);
  for (const Stretch& s : units_[size_t(unit)]) processes_->finish(s.gathering);
}

void GatheredBlocks::free(int64_t unit) {
  for (Stretch& s : units_[size_t(unit)]) {
    if (!s.gathering) continue;
    processes_->finish(s.gathering);
    s.gathering.reset();
    free_memory(s.of->whole);
  }
}

void GatheredBlocks::make_gradients(int64_t unit) {
  for (Stretch& s : units_[size_t(unit)]) {
    s.gradients = at::zeros_like(s.of->whole);
    for (const size_t i : s.of->pieces) {
      const Optimizer::Piece& piece = s.group->pieces[i];
      piece.weight.mutable_grad() =
          s.gradients.narrow(0, piece.begin - s.of->begin, piece.end - piece.begin)
              .view(piece.weight.sizes());
    }
  }
}

void GatheredBlocks::reduce(int64_t unit) {
  add_reduced();
  for (Stretch& s : units_[size_t(unit)]) {
    if (!s.gradients.defined()) continue;
    for (const size_t i : s.of->pieces) s.group->pieces[i].weight.mutable_grad() = at::Tensor();
    s.sum = at::empty_like(s.of->gradients);
    s.reducing = processes_->reduce_scatter(s.gradients, s.sum);
  }
  reducing_ = unit;
}

void GatheredBlocks::add_reduced() {
  if (reducing_ < 0) return;
  const c10::NoGradGuard no_graph;
  for (Stretch& s : units_[size_t(reducing_)]) {
    if (!s.reducing) continue;
    processes_->finish(s.reducing);
    s.of->gradients.add_(s.sum);
    s.gradients = s.sum = at::Tensor();
    s.reducing.reset();
  }
  reducing_ = -1;
}

void GatheredBlocks::open(bool with_gradients) {
  const c10::NoGradGuard no_graph;
  gather(0);
  if (with_gradients) make_gradients(0);
}

void GatheredBlocks::close() {
  reduce(0);
  add_reduced();
  free(0);
}

void GatheredBlocks::drop() {
  try {
    for (size_t unit = 0; unit < units_.size(); ++unit) free(int64_t(unit));
  } catch (const std::exception&) {
    // Another process is gone. The next call that needs it says so.
  }
}

void GatheredBlocks::enter(int64_t layer, at::Tensor& x, at::Tensor& delta, State& /* state */) {
  const int64_t unit = layer + 1;
  gather(unit);
  begin_gather(unit + 1);
  mark(x, delta, c10::make_intrusive<Call>(this, unit, true));
}

void GatheredBlocks::leave(int64_t layer, at::Tensor& x, at::Tensor& delta, State& /* state */) {
  const int64_t unit = layer + 1;
  mark(x, delta, c10::make_intrusive<Call>(this, unit, false));
  free(unit);
}

void GatheredBlocks::begin_backward(int64_t unit) {
  const c10::NoGradGuard no_graph;
  gather(unit);
  if (unit > 1) begin_gather(unit - 1);
  make_gradients(unit);
}

void GatheredBlocks::end_backward(int64_t unit) {
  const c10::NoGradGuard no_graph;
  reduce(unit);
  free(unit);
}

std::vector<std::pair<std::string, at::Tensor>> GatheredBlocks::whole_weights(bool keep) {
  const c10::NoGradGuard no_graph;
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (size_t u = 0; u < units_.size(); ++u) {
    gather(int64_t(u));
    for (const Stretch& s : units_[u]) {
      for (const size_t i : s.of->pieces) {
        const Optimizer::Piece& piece = s.group->pieces[i];
        if (keep) all.emplace_back(piece.name, piece.weight.detach().to(at::kCPU).clone());
      }
    }
    free(int64_t(u));
  }
  return all;
}

}  // namespace horner
