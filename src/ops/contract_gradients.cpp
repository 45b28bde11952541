// Gradients of o, norm and the final state by every input and the initial state. In fp64 they are compared with differences,
// in lower precision with the gradients of the definition in fp64.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>

#include "ops/chunks.h"
#include "ops/contract_parts.h"

namespace horner::contract_parts {
namespace {

// A point: the inputs, and the first part of an initial state if the form carries a state.
struct Point {
  Inputs in;
  State state;

  std::vector<at::Tensor*> tensors(const Op& op) {
    std::vector<at::Tensor*> list;
    for (const Input& input : op.inputs) {
      if ((in.*input.tensor).defined()) list.push_back(&(in.*input.tensor));
    }
    if (!state.empty()) list.push_back(&state.parts[0]);
    return list;
  }
};

class Gradients {
 public:
  explicit Gradients(const Case& c)
      : c_(c), generator_(at::detail::createCPUGenerator(c.seed + 7)) {
    point_.in = form_inputs(c);
    if (c.keeps_state && c.variant.options.causal) {
      Case before = c;
      before.seed += 3;
      before.dims.T = 5;
      point_.state = run(c.op, to_wide(c, form_inputs(before)), {}, definition()).state;
      if (!c.exact()) {
        for (at::Tensor& x : point_.state.parts)
          if (x.is_floating_point()) x = x.to(at::kFloat);
      }
    }
    if (!point_.state.empty() && !refusal(*c.form, point_.in, point_.state, with(c)).empty())
      point_.state = {};
    weight_ = random_like(truth(c, point_.in, point_.state).o);
  }

  // Some forms have no gradient of some results.
  bool has_any() const {
    Point p = point_;
    for (at::Tensor* x : p.tensors(c_.op)) *x = x->detach().requires_grad_(true);
    const c10::AutoGradMode graph(true);
    return refusal(*c_.form, p.in, p.state, with(c_)).empty();
  }

  // The derivative along a random direction of every tensor at once, against a five-point difference.
  Measure against_differences() {
    std::vector<at::Tensor> along;
    for (const at::Tensor* x : point_.tensors(c_.op)) along.push_back(random_like(*x));
    const Options o = with(c_, 7);
    const std::vector<at::Tensor> found = by_autograd(point_, o);
    double exact = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i].defined()) exact += dot(found[i], along[i]);  // order 0 reads no q and no k
    }
    const auto moved = [&](double h) {
      Point p = point_;
      const std::vector<at::Tensor*> list = p.tensors(c_.op);
      for (size_t i = 0; i < list.size(); ++i) *list[i] = *list[i] + h * along[i];
      return loss(p, o).item<double>();
    };
    const double h = 3e-4;
    const double difference =
        (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
    const double scale = std::max(std::abs(loss(point_, o).item<double>()), std::abs(exact));
    return {std::abs(exact - difference) / std::max(scale, 1.0), 1e-8};
  }

  // The error that is worst relative to its bound, twice the error of the plain form.
  Measure against_definition() {
    Point wide = point_;
    wide.in = to_wide(c_, point_.in);
    for (at::Tensor& x : wide.state.parts)
      if (x.is_floating_point()) x = x.to(at::kDouble);
    const std::vector<at::Tensor> exact = by_autograd(wide, definition());
    const std::vector<at::Tensor> got = by_autograd(point_, with(c_));
    std::vector<at::Tensor> plain;
    {
      const RoundedProducts low;
      plain = by_autograd(point_, with(c_, forms::kChunked, 64));
    }
    Measure worst{0, 1};
    for (size_t i = 0; i < exact.size(); ++i) {
      if (!exact[i].defined() || !got[i].defined() || exact[i].abs().max().item<double>() == 0)
        continue;
      const double error = tensor_error(c_, got[i], exact[i]);
      const double bound = 2 * tensor_error(c_, plain[i], exact[i]) + 1e-5;
      if (error / bound > worst.error / worst.bound) worst = {error, bound};
    }
    return worst;
  }

 private:
  Options definition() const { return with(c_, c_.op.forms[0].name); }

  at::Tensor random_like(const at::Tensor& x) {
    return at::randn(x.sizes(), generator_, x.options().device(at::kCPU)).to(c_.device);
  }

  static double dot(const at::Tensor& a, const at::Tensor& b) {
    const auto real = [](const at::Tensor& x) {
      return x.is_complex() ? at::view_as_real(x.resolve_conj()) : x;
    };
    return (real(a) * real(b)).sum().item<double>();
  }

  at::Tensor loss(const Point& p, const Options& o) const {
    const Result y = run(c_.op, p.in, p.state, o);
    at::Tensor L = at::real(y.o.to(weight_.scalar_type()) * weight_).sum();
    if (y.norm.defined()) L = L + y.norm.sum();
    const State last = c_.op.absolute == nullptr ? y.state : c_.op.absolute(y.state);
    for (const at::Tensor& part : last.parts) {
      if (part.is_floating_point()) L = L + part.sum();
      if (part.is_complex()) L = L + at::real(part).sum();
    }
    return L;
  }

  std::vector<at::Tensor> by_autograd(Point p, const Options& o) const {
    std::vector<at::Tensor> leaves;
    for (at::Tensor* x : p.tensors(c_.op)) {
      *x = x->detach().clone().requires_grad_(true);
      leaves.push_back(*x);
    }
    const c10::AutoGradMode graph(true);
    return torch::autograd::grad({loss(p, o)}, leaves, {}, {}, false, true);
  }

  const Case& c_;
  at::Generator generator_;
  Point point_;
  at::Tensor weight_;  // the loss is <o, weight> + sum of norm + sum of the state
};

}  // namespace

Measure gradients(const Case& c) {
  Gradients g(c);
  if (!g.has_any()) return {.applies = false};
  return c.exact() ? g.against_differences() : g.against_definition();
}

}  // namespace horner::contract_parts
