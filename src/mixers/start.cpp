#include "mixers/start.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>

#include "core/check.h"
#include "mixers/mixer.h"
#include "nn/precision.h"

namespace horner {
namespace {

constexpr int64_t kMostPoints = 1 << 15;    // of k-means; more are thinned out evenly
constexpr double kBlockElements = 1 << 24;  // scores that exist at one time

// Sums over queries, for each head.
struct Sums {
  at::Tensor distance, entropy, far;    // (H)
  double queries = 0, far_queries = 0;  // of one head

  static void add(at::Tensor& sum, const at::Tensor& y) {  // y (B,H,..)
    const at::Tensor own = y.flatten(2).to(at::kDouble).sum(2).sum(0);
    sum = sum.defined() ? sum + own : own;
  }
};

// Some queries: their scores x (B,H,C,T), -inf for the future, their weights, and how long ago each token was (C,T).
struct Block {
  at::Tensor x, norm, weights, ago;
};

void add_block(Sums& sums, const Block& b, int64_t window, int64_t sinks) {
  const double B = double(b.x.size(0));
  const at::Tensor s = at::arange(b.x.size(3), b.ago.options());
  const at::Tensor beyond = (b.ago >= window).logical_and(s >= sinks);
  const at::Tensor x = b.x.masked_fill(b.ago < 0, 0);
  Sums::add(sums.distance, b.weights * b.ago);
  Sums::add(sums.entropy, b.norm.squeeze(-1) - (b.weights * x).sum(-1));
  Sums::add(sums.far, b.weights * beyond);
  sums.queries += B * double(b.x.size(2));
  sums.far_queries += B * beyond.any(1).sum().item<double>();
}

}  // namespace

HeadStatistics measure(const Inputs& in, int64_t window, int64_t sinks) {
  HORNER_CHECK(window >= 1 && sinks >= 0, "measure: a window of {} with {} sinks", window, sinks);
  const c10::NoGradGuard no_graph;
  const int64_t B = in.q.size(0), T = in.q.size(1), H = in.q.size(2), r = H / in.k.size(2);
  const double scale = 1 / std::sqrt(double(in.q.size(3)));
  const auto heads = [](const at::Tensor& y) { return wide(y).transpose(1, 2); };  // (B,H,T,.)
  const at::Tensor q = heads(in.q) * scale, k = heads(in.k).repeat_interleave(r, 1),
                   v = heads(in.v).repeat_interleave(r, 1);
  const int64_t C = std::clamp<int64_t>(int64_t(kBlockElements / double(B * H * T)), 1, T);
  const at::Tensor places = at::arange(T, in.q.options().dtype(at::kLong));
  Sums sums;
  std::vector<at::Tensor> o, norm;
  for (int64_t t = 0; t < T; t += C) {
    const int64_t n = std::min(C, T - t);
    Block b;
    b.ago = places.narrow(0, t, n).unsqueeze(1) - places;
    b.x = at::matmul(q.narrow(2, t, n), k.transpose(2, 3))
              .masked_fill(b.ago < 0, -std::numeric_limits<double>::infinity());
    b.norm = b.x.logsumexp(-1, true);
    b.weights = (b.x - b.norm).exp();
    add_block(sums, b, window, sinks);
    o.push_back(at::matmul(b.weights, v));
    norm.push_back(b.norm.squeeze(-1));
  }
  HeadStatistics y;
  y.in.q = in.q, y.in.k = in.k, y.in.v = in.v;
  y.o = at::cat(o, 2).transpose(1, 2);
  y.norm = at::cat(norm, 2).transpose(1, 2);
  y.distance = sums.distance / sums.queries;
  y.entropy = sums.entropy / sums.queries;
  y.far = sums.far / std::max(sums.far_queries, 1.0);
  y.window = window;
  y.sinks = sinks;
  return y;
}

HeadStatistics measure(Mixer& teacher, const at::Tensor& x, int64_t window, int64_t sinks) {
  const c10::NoGradGuard no_graph;
  const Core core = teacher.core(x);
  HORNER_CHECK(
      core.keeps_tokens() && core.options.causal && core.options.window == 0,
      "[{}] has no softmax attention over all past tokens to measure",
      teacher.name()
  );
  HeadStatistics y = measure(core.in, window, sinks);
  y.x = x;
  return y;
}

at::Tensor k_means(const at::Tensor& given, int64_t count, int64_t rounds) {
  const c10::NoGradGuard no_graph;
  at::Tensor points = wide(given);
  if (points.size(0) > kMostPoints) {
    const int64_t step = (points.size(0) + kMostPoints - 1) / kMostPoints;
    points = points.slice(0, 0, points.size(0), step).contiguous();
  }
  // k-means++: the next centre is a point drawn with the square of its distance from the centres so far.
  at::Generator generator = at::detail::createCPUGenerator(1);
  at::Tensor distance;  // (N)
  std::vector<at::Tensor> first;
  while (int64_t(first.size()) < count) {
    const at::Tensor weight = distance.defined() ? distance.clamp_min(1e-30)
                                                 : at::ones({points.size(0)}, points.options());
    const int64_t chosen = weight.cpu().multinomial(1, true, generator).item<int64_t>();
    first.push_back(points[chosen]);
    const at::Tensor own = (points - first.back()).square().sum(1);
    distance = distance.defined() ? at::minimum(distance, own) : own;
  }
  at::Tensor centres = at::stack(first);
  for (int64_t i = 0; i < rounds; ++i) {  // Lloyd: each centre becomes the mean of its points
    const at::Tensor nearest =
        (at::matmul(points, centres.t()) - centres.square().sum(1) / 2).argmax(1);
    const at::Tensor sums = at::zeros_like(centres).index_add(0, nearest, points);
    const at::Tensor sizes = at::bincount(nearest, {}, count).unsqueeze(1);
    centres = at::where(sizes > 0, sums / sizes.clamp_min(1), centres);
  }
  return centres;
}

at::Tensor k_means_of_heads(const at::Tensor& k, int64_t count) {
  std::vector<at::Tensor> heads;
  for (const at::Tensor& points : k.flatten(0, 1).unbind(1)) {
    heads.push_back(k_means(points, count));
  }
  return at::stack(heads);
}

}  // namespace horner
