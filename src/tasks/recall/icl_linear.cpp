#include "tasks/recall/icl_linear.h"

#include <ATen/Functions.h>

#include <cmath>
#include <limits>

#include "core/check.h"

namespace horner {
namespace {

using Vector = std::vector<double>;

Vector normals(Random& random, int64_t n) {
  Vector x(static_cast<size_t>(n));
  for (double& value : x) value = random.normal();
  return x;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// x less what lies in the span of an orthonormal basis; twice, for the digits that the first lost.
void remove_span(Vector& x, const std::vector<Vector>& basis) {
  for (int pass = 0; pass < 2; ++pass) {
    for (const Vector& b : basis) {
      const double part = dot(x, b);
      for (size_t i = 0; i < x.size(); ++i) x[i] -= part * b[i];
    }
  }
}

std::vector<Vector> orthonormal(const std::vector<Vector>& vectors) {
  std::vector<Vector> basis;
  for (Vector x : vectors) {
    remove_span(x, basis);
    const double length = std::sqrt(dot(x, x));
    for (double& value : x) value /= length;
    basis.push_back(std::move(x));
  }
  return basis;
}

// x of covariance U diag(s^2) U^T, U random, from x of covariance I.
void recolour(std::vector<Vector>& xs, const Vector& s, Random& random) {
  const auto d = int64_t(xs[0].size());
  std::vector<Vector> directions;
  for (size_t i = 0; i < s.size(); ++i) directions.push_back(normals(random, d));
  const std::vector<Vector> U = orthonormal(directions);
  const double scale = std::sqrt(double(d) / dot(s, s));  // trace d
  for (Vector& x : xs) {
    Vector y(x.size());
    for (size_t i = 0; i < s.size(); ++i) {
      for (size_t j = 0; j < y.size(); ++j) y[j] += scale * s[i] * x[i] * U[i][j];
    }
    x = std::move(y);
  }
}

void change(std::vector<Vector>& xs, const std::string& shift, Random& random) {
  const size_t d = xs[0].size();
  if (shift == "skewed") {
    Vector s(d);
    for (size_t i = 0; i < d; ++i) s[i] = 1.0 / double(i + 1);
    recolour(xs, s, random);
  } else if (shift == "half") {
    recolour(xs, Vector((d + 1) / 2, 1.0), random);
  } else if (shift == "opposite") {
    Vector sign(d);
    for (double& value : sign) value = random.integer(2) == 0 ? 1 : -1;
    for (Vector& x : xs) {
      for (size_t i = 0; i < d; ++i) x[i] = sign[i] * std::abs(x[i]);
    }
    for (double& value : xs.back()) value = -value;
  } else if (shift == "orthogonal") {
    remove_span(xs.back(), orthonormal({xs.begin(), xs.end() - 1}));
  }
}

bool last_only(const std::string& shift) { return shift == "opposite" || shift == "orthogonal"; }

}  // namespace

IclLinear::IclLinear(const Options& o) : o_(o) {
  o.check("icl_linear");
  HORNER_CHECK(o.d >= 1 && o.n >= 1, "[icl_linear] needs d, n >= 1, got {} and {}", o.d, o.n);
  HORNER_CHECK(o.sigma >= 0, "[icl_linear] sigma must be at least 0, got {}", o.sigma);
  HORNER_CHECK(o.stage >= 0, "[icl_linear] stage must be at least 0, got {}", o.stage);
  HORNER_CHECK(
      o.steps >= 1 && o.steps <= 10000, "[icl_linear] steps must be 1 .. 10000, got {}", o.steps
  );
  HORNER_CHECK(
      o.start_d >= 1 && o.start_n >= 1,
      "[icl_linear] start_d and start_n must be at least 1, got {} and {}",
      o.start_d,
      o.start_n
  );
  HORNER_CHECK(
      o.shift != "orthogonal" || o.n <= o.d,
      "[icl_linear] shift=orthogonal needs n <= d, got {} and {}",
      o.n,
      o.d
  );
}

TaskShape IclLinear::shape() const { return {.T = 2 * o_.n, .features = o_.d, .regression = true}; }

Batch IclLinear::batch(Split split, const std::vector<int64_t>& indices) const {
  segment_of({size(split)}, indices);
  const bool grows = split == Split::train && o_.stage > 0;
  const std::string shift = split == Split::train ? "none" : o_.shift;
  const double sigma = shift == "noisy" ? std::max(1.0, o_.sigma) : o_.sigma;
  const int64_t B = int64_t(indices.size()), T = 2 * o_.n;
  Batch batch;
  batch.features = at::zeros({B, T, o_.d}, at::kFloat);
  batch.values = at::full({B, T}, std::numeric_limits<float>::quiet_NaN(), at::kFloat);
  batch.lengths = at::full({B}, T, at::kLong);
  float* features = batch.features.mutable_data_ptr<float>();
  float* values = batch.values.mutable_data_ptr<float>();
  int64_t* lengths = batch.lengths.mutable_data_ptr<int64_t>();
  each_example(indices, [&](int64_t row, int64_t index) {
    Random random = o_.random(split, index), noise = o_.random(split, index, Stream::noise);
    const int64_t stage = grows ? std::min(index / o_.stage, o_.d + o_.n) : 0;
    const int64_t live = grows ? std::min(o_.d, o_.start_d + stage) : o_.d;
    const int64_t n = grows ? std::min(o_.n, o_.start_n + 2 * stage) : o_.n;
    lengths[row] = 2 * n;
    const Vector w = normals(random, live);
    std::vector<Vector> xs;
    for (int64_t i = 0; i < n; ++i) xs.push_back(normals(random, live));
    change(xs, shift, random);
    for (int64_t i = 0; i < n; ++i) {
      const Vector& x = xs[size_t(i)];
      const double y = dot(w, x) + (sigma > 0 ? sigma * noise.normal() : 0);  // y_i = w.x_i + noise
      float* pair = features + (row * T + 2 * i) * o_.d;
      for (int64_t j = 0; j < live; ++j) pair[j] = float(x[size_t(j)]);
      pair[o_.d] = float(y);
      if (!last_only(shift) || i == n - 1) values[row * T + 2 * i] = float(y);
    }
  });
  return batch;
}

std::shared_ptr<Task> IclLinear::at_length(int64_t T) const {
  HORNER_CHECK(T % 2 == 0, "[icl_linear] a length is twice the points, got {}", T);
  Options options = o_;
  options.n = T / 2;
  options.stage = 0;
  return std::make_shared<IclLinear>(options);
}

// Each rule sees the points before i and is asked for y_i; squared errors over all i that count.
std::vector<Baseline> IclLinear::baselines() const {
  const Batch batch = test_sample(*this, 64);
  const int64_t n = o_.n, d = o_.d, B = batch.features.size(0);
  const at::Tensor pairs = batch.features.to(at::kDouble).view({B, n, 2, d});
  const at::Tensor X = pairs.select(2, 0), y = pairs.select(2, 1).select(2, 0);  // (B,n,d) (B,n)
  const at::Tensor rates = at::tensor({0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.3, 1.6}, X.options());
  const at::Tensor one = at::eye(d, X.options());
  double zero = 0, squares = 0, ridge = 0, mean = 0, neighbours = 0;
  at::Tensor descent = at::zeros_like(rates);
  const int64_t begin = last_only(o_.shift) ? n - 1 : 0;
  for (int64_t i = begin; i < n; ++i) {
    const at::Tensor A = X.narrow(1, 0, i), b = y.narrow(1, 0, i).unsqueeze(2);  // (B,i,d) (B,i,1)
    const at::Tensor q = X.select(1, i).unsqueeze(1), want = y.select(1, i);     // (B,1,d) (B)
    const at::Tensor At = A.transpose(1, 2), Ab = At.matmul(b), gram = At.matmul(A);
    const auto error = [&](const at::Tensor& guess) {  // (B)
      return (guess - want).square().mean().item<double>() / double(n - begin);
    };
    const auto penalised = [&](double penalty) {  // w = (A^T A + p)^-1 A^T b
      return error(q.matmul(at::linalg_solve(gram + penalty * one, Ab)).flatten());
    };
    zero += error(at::zeros_like(want));
    squares += penalised(1e-9);  // its limit has the minimum norm
    ridge += penalised(1);
    mean += error(q.matmul(Ab).flatten() / double(std::max<int64_t>(1, i)));
    const at::Tensor near =
        std::get<1>((A - q).square().sum(2).topk(std::min<int64_t>(3, i), 1, false));
    neighbours += error(i == 0 ? at::zeros_like(want) : y.narrow(1, 0, i).gather(1, near).mean(1));
    at::Tensor w = at::zeros({B, d, rates.size(0)}, X.options());  // for every rate
    for (int64_t step = 0; step < o_.steps; ++step) {
      w = w + rates / double(i + d) * (Ab - gram.matmul(w));
    }
    descent += (q.matmul(w).squeeze(1) - want.unsqueeze(1)).square().mean(0) / double(n - begin);
  }
  return {
      {"zero", zero, "0 for every y"},
      {"least squares", squares, "of minimum norm"},
      {"ridge", ridge, "penalty 1"},
      {"averaging", mean, "w = the mean of y x"},
      {"3 nearest", neighbours, "mean y of the three nearest x"},
      {fmt::format("{} gradient steps", o_.steps),
       descent.min().item<double>(),
       "w += r A^T(b - A w)/(i + d), at the best of eight rates r"}};
}

}  // namespace horner
