#include "nn/head_loss/head_loss.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>

#include "nn/precision.h"

namespace horner {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kUnit = 8, kTile = 128;  // numbers of a row, rows of a matrix product

int64_t up_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Pieces of equal length, of whole tiles.
int64_t piece_rows(int64_t n, int64_t V, int64_t logits) {
  const int64_t most = std::max(logits / V / kTile * kTile, kTile);
  const int64_t pieces = std::max<int64_t>((n + most - 1) / most, 1);
  return std::min(up_to((n + pieces - 1) / pieces, kTile), n);
}

at::ScalarType computed_type(const at::Tensor& x, const at::Tensor& weight) {
  const auto device = x.device().type();
  if (x.scalar_type() != at::kDouble && at::autocast::is_autocast_enabled(device))
    return at::autocast::get_autocast_dtype(device);
  return weight.element_size() < x.element_size() ? weight.scalar_type() : x.scalar_type();
}

// sum += a b, in fp32 whatever a and b are; the first product overwrites.
void add_product(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool first) {
  const double keep = first ? 0 : 1;
  if (a.scalar_type() == sum.scalar_type()) {
    at::addmm_out(sum, sum, a, b, keep);
  } else if (a.is_cuda()) {
    at::addmm_out(sum, sum, a, b, sum.scalar_type(), keep, 1);
  } else {
    const at::Tensor own = at::mm(a, b);
    first ? sum.copy_(own) : sum.add_(own);
  }
}

void products(at::Tensor& l, const at::Tensor& x, const at::Tensor& W, const at::Tensor& b) {
  if (b.defined())
    at::addmm_out(l, b, x, W.t());  // l_i = x_i W^T + b
  else
    at::mm_out(l, x, W.t());
}

// l (m,V), the logits of rows first .. first + m-1: replaced by their gradient if `gradient` is set, else lost.
// each (m): their losses.
using PieceStep =
    std::function<void(at::Tensor& l, int64_t first, bool gradient, at::Tensor& each)>;

struct Computed {
  at::Tensor loss;        // of all tokens
  at::Tensor dx, dW, db;  // undefined where they are not wanted
  bool wants_x = false, wants_head = false;

  void run(const at::Tensor& given, const Head& head, const PieceStep& step, int64_t logits) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const c10::impl::ExcludeDispatchKeyGuard typed(c10::autocast_dispatch_keyset);
    const bool gradient = wants_x || wants_head;
    const int64_t n = given.size(0), V = head.weight.size(0);
    const at::Tensor x = given.contiguous(), W = head.weight;
    const at::Tensor b = head.bias.defined() ? head.bias.to(x.scalar_type()) : at::Tensor();
    const auto sums = x.options().dtype(wide(x.new_empty({0})).scalar_type());
    at::Tensor each = at::empty({n}, sums);
    if (wants_x) dx = at::empty_like(x);
    if (wants_head) dW = n > 0 ? at::empty(W.sizes(), sums) : at::zeros(W.sizes(), sums);
    if (wants_head && b.defined()) db = at::zeros({V}, sums);
    const int64_t rows = piece_rows(n, V, logits);
    const at::Tensor room = at::empty({rows, up_to(V, kUnit)}, x.options());
    for (int64_t i = 0; i < n; i += rows) {
      const int64_t m = std::min(rows, n - i);
      const at::Tensor xi = x.narrow(0, i, m);
      at::Tensor l = room.narrow(0, 0, m).narrow(1, 0, V), own = each.narrow(0, i, m);
      products(l, xi, W, b);
      step(l, i, gradient, own);
      if (wants_x) {
        at::Tensor dxi = dx.narrow(0, i, m);
        at::mm_out(dxi, l, W);  // dx_i = dl_i W
      }
      if (wants_head) add_product(dW, l.t(), xi, i == 0);  // dW += dl_i^T x_i
      if (db.defined()) db.add_(l.sum(0, false, db.scalar_type()));
    }
    loss = each.sum();
  }
};

class HeadLossNode : public torch::autograd::Function<HeadLossNode> {
 public:
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& x,
      const at::Tensor& weight,
      const std::optional<at::Tensor>& bias,
      const PieceStep& step,
      int64_t logits
  ) {
    Computed c;
    c.wants_x = x.requires_grad();
    c.wants_head = weight.requires_grad();
    const at::ScalarType type = computed_type(x, weight);
    c.run(x.to(type), {weight.to(type), bias.value_or(at::Tensor())}, step, logits);
    ctx->save_for_backward({c.dx, c.dW, c.db});
    ctx->saved_data["x"] = x.scalar_type();
    ctx->saved_data["weight"] = weight.scalar_type();
    return c.loss;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dy) {
    const auto d = ctx->get_saved_variables();
    const auto scaled = [&](const at::Tensor& x, const char* type) {
      return x.defined() ? (x * dy[0]).to(ctx->saved_data[type].toScalarType()) : x;
    };
    return {
        scaled(d[0], "x"),
        scaled(d[1], "weight"),
        scaled(d[2], "weight"),
        at::Tensor(),
        at::Tensor()};
  }
};

at::Tensor summed(const at::Tensor& x, const Head& head, const PieceStep& step, int64_t logits) {
  if (!c10::GradMode::is_enabled() || !(x.requires_grad() || head.weight.requires_grad())) {
    const at::ScalarType type = computed_type(x, head.weight);
    Computed c;
    c.run(x.to(type), {head.weight.to(type), head.bias}, step, logits);
    return c.loss;
  }
  std::optional<at::Tensor> bias;
  if (head.bias.defined()) bias = head.bias;
  return HeadLossNode::apply(x, head.weight, bias, step, logits);
}

// log softmax of the logits, capped.   (m,V), fp32 or fp64
at::Tensor log_probabilities(const at::Tensor& l, double cap) {
  const at::Tensor logits = wide(l);
  return at::log_softmax(cap > 0 ? cap * (logits / cap).tanh() : logits, -1);
}

}  // namespace

LossStep& loss_step() {
  static LossStep step = nullptr;
  return step;
}

bool has_head_loss(const at::Tensor& x) { return x.is_cuda() && loss_step() != nullptr; }

void plain_loss_step(
    at::Tensor& l, const at::Tensor& targets, double cap, bool gradient, at::Tensor& each
) {
  const at::Tensor t = cap > 0 ? (wide(l) / cap).tanh() : at::Tensor();
  const at::Tensor logits = cap > 0 ? cap * t : wide(l);
  const at::Tensor has = targets >= 0, place = targets.clamp_min(0).unsqueeze(1);
  const at::Tensor log_sum = logits.logsumexp(-1, true);
  each.copy_(at::where(has, (log_sum - logits.gather(1, place)).squeeze(1), 0.0));
  if (!gradient) return;
  at::Tensor d = (logits - log_sum).exp();  // softmax(l)
  d = d.scatter_add(1, place, at::full_like(place, -1, d.options()));
  if (cap > 0) d = d * (1 - t.square());
  l.copy_(at::where(has.unsqueeze(1), d, 0.0));
}

at::Tensor head_loss(
    const at::Tensor& x, const Head& head, const at::Tensor& targets, int64_t piece_logits
) {
  const LossStep step = x.is_cuda() ? loss_step() : plain_loss_step;
  return summed(
      x,
      head,
      [&](at::Tensor& l, int64_t first, bool gradient, at::Tensor& each) {
        step(l, targets.narrow(0, first, l.size(0)), head.cap, gradient, each);
      },
      piece_logits
  );
}

at::Tensor head_kl(
    const at::Tensor& x,
    const Head& head,
    const at::Tensor& x_wanted,
    const Head& wanted,
    int64_t piece_logits
) {
  const at::ScalarType type = computed_type(x, head.weight);
  const at::Tensor y = x_wanted.detach().to(type), U = wanted.weight.detach().to(type);
  const at::Tensor bias = wanted.bias.defined() ? wanted.bias.detach().to(type) : wanted.bias;
  const auto step = [&](at::Tensor& l, int64_t first, bool gradient, at::Tensor& each) {
    at::Tensor other = at::empty_like(l);
    products(other, y.narrow(0, first, l.size(0)), U, bias);
    at::Tensor log_q = log_probabilities(other, wanted.cap);
    at::Tensor log_p = log_probabilities(l, head.cap);
    const at::Tensor q = log_q.exp();
    each.copy_(log_q.sub_(log_p).mul_(q).sum(-1));  // sum_v q_v (log q_v - log p_v)
    if (!gradient) return;
    at::Tensor d = log_p.exp_().sub_(q);  // dl = p - q
    if (head.cap > 0) d.mul_(1 - (wide(l) / head.cap).tanh().square());
    l.copy_(d);
  };
  return summed(x, head, step, piece_logits);
}

}  // namespace horner
