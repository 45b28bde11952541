#include "lab/theory/trained.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "core/check.h"
#include "core/interrupt.h"

namespace horner::theory {
namespace {

constexpr int64_t d = 5, E = d + 1, kBatch = 128, kTested = 4096;
constexpr double kStep = 1e-3, kNoise = 0.1;

struct Prompts {
  at::Tensor tokens, query, target;  // (R,B,L,E), (R,B,E), (R,B)
};

class Source {
 public:
  Source(const TrainedOptions& o) : o_(o) {
    at::Tensor Sigma = at::empty({d, d});
    for (int64_t i = 0; i < d; ++i) {
      for (int64_t j = 0; j < d; ++j) Sigma[i][j] = std::pow(0.5, double(std::abs(i - j)));
    }
    root_ = at::linalg_cholesky(Sigma).t().contiguous().to(o.device);  // x = g root
  }

  Prompts draw(int64_t B) const {
    const auto normals = [&](std::vector<int64_t> sizes) {
      return at::randn(sizes, at::TensorOptions(o_.device));
    };
    const int64_t R = o_.runs, L = o_.L;
    const at::Tensor x = at::matmul(normals({R, B, L + 1, d}), root_);  // the query's is the last
    const at::Tensor w = normals({R, B, d, 1}) / std::sqrt(double(d));
    const at::Tensor y = at::matmul(x, w) + std::sqrt(kNoise) * normals({R, B, L + 1, 1});
    const at::Tensor all = at::cat({x, y}, -1);
    return {
        all.narrow(2, 0, L),
        at::constant_pad_nd(x.select(2, L), {0, 1}),
        y.select(2, L).squeeze(-1)};
  }

 private:
  const TrainedOptions& o_;
  at::Tensor root_;
};

struct Layer {
  at::Tensor q, k, v, out;  // (R,E,E), (R,E,E), (R,E,E), (R,E,1)

  at::Tensor predict(const Prompts& p, bool softmax) const {
    const at::Tensor asked = at::matmul(at::matmul(p.query, q), k.transpose(1, 2));  // (R,B,E)
    const at::Tensor s =
        at::matmul(p.tokens, asked.unsqueeze(-1)).squeeze(-1) / std::sqrt(double(E));  // (R,B,L)
    const at::Tensor a = softmax ? s.softmax(-1) : s / double(s.size(-1));
    const at::Tensor read = at::matmul(a.unsqueeze(2), p.tokens).squeeze(2);  // (R,B,E)
    return at::matmul(at::matmul(read, v), out).squeeze(-1);
  }
  std::vector<at::Tensor> all() const { return {q, k, v, out}; }
};

Layer start(const TrainedOptions& o) {
  const double bound = 1 / std::sqrt(double(E));
  const auto matrix = [&](int64_t columns) {
    return at::empty({o.runs, E, columns}, at::TensorOptions(o.device))
        .uniform_(-bound, bound)
        .requires_grad_(true);
  };
  return {matrix(E), matrix(E), matrix(E), matrix(1)};
}

std::vector<double> by_run(const at::Tensor& errors) {  // (R,B) -> (R)
  const at::Tensor means = errors.mean(1).to(at::kDouble).cpu();
  return {means.const_data_ptr<double>(), means.const_data_ptr<double>() + means.numel()};
}

Layer train(const TrainedOptions& o, const Source& source, bool softmax) {
  at::manual_seed(o.seed);  // the same weights and prompts for both kinds
  const Layer layer = start(o);
  for (int64_t step = 0; step < o.steps; ++step) {
    if (step % 64 == 0 && interrupted()) throw InterruptedError("stopped in training");
    const Prompts p = source.draw(kBatch);
    const at::Tensor loss = (layer.predict(p, softmax) - p.target).square().mean(1).sum();
    const auto gradients = torch::autograd::grad({loss}, layer.all());
    const c10::NoGradGuard no_graph;
    for (size_t i = 0; i < gradients.size(); ++i) layer.all()[i].sub_(gradients[i], kStep);
  }
  return layer;
}

// The mean of the posterior of w: (X^T X + noise d I)^-1 X^T y.
at::Tensor ridge(const Prompts& p) {
  const at::Tensor x = p.tokens.narrow(-1, 0, d), y = p.tokens.narrow(-1, d, 1);
  const at::Tensor I = at::eye(d, x.options()) * (kNoise * double(d));
  const at::Tensor w =
      at::linalg_solve(at::matmul(x.transpose(-1, -2), x) + I, at::matmul(x.transpose(-1, -2), y));
  return at::matmul(p.query.narrow(-1, 0, d).unsqueeze(-2), w).flatten(2).squeeze(-1);
}

}  // namespace

TrainedRisks train_and_test(const TrainedOptions& o) {
  HORNER_CHECK(
      o.L >= 2 && o.steps >= 0 && o.runs >= 1, "[theory] L, steps and runs must be positive"
  );
  const Source source(o);
  const Layer softmax = train(o, source, true), linear = train(o, source, false);
  const c10::NoGradGuard no_graph;
  at::manual_seed(o.seed + 1);
  constexpr int64_t kPiece = 512;
  std::vector<at::Tensor> errors[3];
  for (int64_t i = 0; i < kTested / kPiece; ++i) {
    const Prompts p = source.draw(kPiece);
    const at::Tensor predictions[] = {softmax.predict(p, true), linear.predict(p, false), ridge(p)};
    for (size_t kind = 0; kind < 3; ++kind)
      errors[kind].push_back((predictions[kind] - p.target).square());
  }
  return {
      by_run(at::cat(errors[0], 1)), by_run(at::cat(errors[1], 1)), by_run(at::cat(errors[2], 1))};
}

}  // namespace horner::theory
