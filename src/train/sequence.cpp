#include "train/sequence.h"

#include <torch/csrc/autograd/custom_function.h>

#include "core/check.h"

namespace horner {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using Shapes = std::vector<PassedStates::Shape>;

struct Call : torch::CustomClassHolder {
  Call(PassedStates* s, int64_t o, int64_t l, Shapes p)
      : states(s), other(o), layer(l), parts(std::move(p)) {}
  PassedStates* states;
  int64_t other, layer;  // the process that is sent to or heard of
  Shapes parts;          // of the state
};

const Call& call_of(AutogradContext* ctx) {
  return static_cast<const Call&>(*ctx->saved_data["call"].toCapsule());
}

int64_t state_tag(const Call& call) { return 2 * call.layer; }
int64_t gradient_tag(const Call& call) { return 2 * call.layer + 1; }

// x, delta -> x, delta, parts of the state that another process sends
struct Receive : torch::autograd::Function<Receive> {
  static variable_list forward(
      AutogradContext* ctx, const c10::intrusive_ptr<Call>& call, at::TensorList xs
  ) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    variable_list ys = xs.vec(), parts, fixed;
    for (const PassedStates::Shape& shape : call->parts) {
      parts.push_back(at::empty(shape.sizes, xs[0].options().dtype(shape.type)));
      if (!shape.has_gradient()) fixed.push_back(parts.back());
    }
    call->states->receive(parts, call->other, state_tag(*call));
    ctx->mark_non_differentiable(fixed);
    ys.insert(ys.end(), parts.begin(), parts.end());
    return ys;
  }
  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const Call& call = call_of(ctx);
    const size_t xs = dys.size() - call.parts.size();
    variable_list dparts, dxs = {at::Tensor()};
    for (size_t i = 0; i < call.parts.size(); ++i) {
      if (call.parts[i].has_gradient()) dparts.push_back(dys[xs + i]);
    }
    call.states->send(dparts, call.other, gradient_tag(call));
    dxs.insert(dxs.end(), dys.begin(), dys.begin() + int64_t(xs));
    return dxs;
  }
};

// x, delta, parts of the state -> x, delta; the parts are sent to another process
struct HandOver : torch::autograd::Function<HandOver> {
  static variable_list forward(
      AutogradContext* ctx, const c10::intrusive_ptr<Call>& call, at::TensorList all
  ) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    const auto middle = all.end() - int64_t(call->parts.size());
    call->states->send({middle, all.end()}, call->other, state_tag(*call));
    return {all.begin(), middle};
  }
  static variable_list backward(AutogradContext* ctx, variable_list dxs) {
    const Call& call = call_of(ctx);
    variable_list dparts, received;
    for (const PassedStates::Shape& shape : call.parts) {
      dparts.emplace_back();
      if (!shape.has_gradient()) continue;
      dparts.back() = at::empty(shape.sizes, dxs[0].options().dtype(shape.type));
      received.push_back(dparts.back());
    }
    call.states->receive(received, call.other, gradient_tag(call));
    dxs.insert(dxs.begin(), at::Tensor());  // of the call
    dxs.insert(dxs.end(), dparts.begin(), dparts.end());
    return dxs;
  }
};

variable_list both(const at::Tensor& x, const at::Tensor& delta) {
  return delta.defined() ? variable_list{x, delta} : variable_list{x};
}

}  // namespace

TargetBatch part_of_tokens(const TargetBatch& whole, int64_t i, int64_t n) {
  const int64_t T = whole.width, width = T / n, first = i * width;
  HORNER_CHECK(
      T % n == 0 && !whole.batch.cu_seqlens.defined(),
      "train.sequence_parallel = {} must divide the tokens of every sequence, got {}",
      n,
      T
  );
  TargetBatch c = whole;
  for (at::Tensor* x : {&c.batch.tokens, &c.batch.features}) {
    if (x->defined()) *x = x->narrow(1, first, width).contiguous();
  }
  c.batch.lengths = at::Tensor();  // what reads in one direction does not see the padding
  const at::Tensor t = whole.places.remainder(T);
  const at::Tensor here = ((t >= first) & (t < first + width)).nonzero().squeeze(1);
  const at::Tensor place = whole.places.index_select(0, here);
  c.places = place.div(T, "floor") * width + place.remainder(T) - first;
  c.answers = whole.answers.index_select(0, here);
  if (whole.weights.defined()) c.weights = whole.weights.index_select(0, here);
  c.count = c.weights.defined() ? c.weights.sum().item<int64_t>() : here.size(0);
  c.width = width;
  c.tokens = whole.tokens / n + (i < whole.tokens % n ? 1 : 0);
  c.goes_on = i + 1 < n;
  return c;
}

PassedStates::PassedStates(std::shared_ptr<Processes> processes, int64_t n)
    : processes_(std::move(processes)), n_(n), group_(processes_->make_group("sequence")) {}

void PassedStates::send(const std::vector<at::Tensor>& tensors, int64_t to, int64_t tag) {
  for (const at::Tensor& x : tensors) {
    std::vector<at::Tensor> one = {x.detach().contiguous()};
    sent_.push_back(
        {processes_->started([&] { return group_->send(one, int(to), int(tag)); }), one[0]}
    );
  }
}

void PassedStates::receive(const std::vector<at::Tensor>& tensors, int64_t from, int64_t tag) {
  for (const at::Tensor& x : tensors) {
    std::vector<at::Tensor> one = {x};
    processes_->finish(processes_->started([&] { return group_->recv(one, int(from), int(tag)); }));
  }
}

void PassedStates::finish() {
  for (const Sent& sent : sent_) processes_->finish(sent.work);
  sent_.clear();
}

std::string PassedStates::key(int64_t from, int64_t layer, const at::Tensor& x) const {
  return fmt::format("state/{}/{}/{}", from, layer, c10::str(x.sizes()));
}

// The state has the same sizes in every step, so they are told once.
std::vector<PassedStates::Shape> PassedStates::told(
    int64_t layer, const at::Tensor& x, const State& state
) {
  std::vector<Shape>& shapes = shapes_[key(processes_->rank(), layer, x)];
  if (!shapes.empty()) return shapes;
  Json all = Json::array();
  for (const at::Tensor& part : state.parts) {
    shapes.push_back({part.sizes().vec(), part.scalar_type()});
    all.push_back({int(part.scalar_type()), part.sizes().vec()});
  }
  processes_->say(key(processes_->rank(), layer, x), all);
  return shapes;
}

std::vector<PassedStates::Shape> PassedStates::heard(int64_t layer, const at::Tensor& x) {
  const std::string name = key(processes_->rank() - 1, layer, x);
  std::vector<Shape>& shapes = shapes_[name];
  if (!shapes.empty()) return shapes;
  for (const Json& part : processes_->hear(name))
    shapes.push_back({part[1].get<std::vector<int64_t>>(), at::ScalarType(part[0].get<int>())});
  return shapes;
}

void PassedStates::enter(int64_t layer, at::Tensor& x, at::Tensor& delta, State& state) {
  if (part() == 0) return;
  const auto call = c10::make_intrusive<Call>(this, processes_->rank() - 1, layer, heard(layer, x));
  const variable_list ys = Receive::apply(call, at::TensorList(both(x, delta)));
  const size_t xs = delta.defined() ? 2 : 1;
  x = ys[0];
  if (delta.defined()) delta = ys[1];
  state.parts.assign(ys.begin() + int64_t(xs), ys.end());
}

void PassedStates::leave(int64_t layer, at::Tensor& x, at::Tensor& delta, State& state) {
  if (part() + 1 == n_) return;
  const auto call =
      c10::make_intrusive<Call>(this, processes_->rank() + 1, layer, told(layer, x, state));
  variable_list all = both(x, delta);
  all.insert(all.end(), state.parts.begin(), state.parts.end());
  const variable_list ys = HandOver::apply(call, at::TensorList(all));
  x = ys[0];
  if (delta.defined()) delta = ys[1];
}

}  // namespace horner
