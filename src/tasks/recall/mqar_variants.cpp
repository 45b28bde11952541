#include "tasks/recall/mqar_variants.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "tasks/recall/on_gpu.h"

namespace horner {
namespace {

constexpr int64_t kMostNumbers = 1 << 26;  // of a table

// Checks what all variants share; w_i = (i+1)^(a-1) for the places of questions.
std::vector<double> weights(
    const MqarVariantOptions& o, std::string_view task, int64_t least_T, int64_t places
) {
  o.check(task);
  HORNER_CHECK(o.pairs >= 1, "[{}] pairs must be at least 1, got {}", task, o.pairs);
  HORNER_CHECK(
      o.T >= least_T, "[{}] {} pairs need T of at least {}, got {}", task, o.pairs, least_T, o.T
  );
  std::vector<double> list;
  for (int64_t i = 0; i < places; ++i) list.push_back(std::pow(i + 1, o.power - 1));
  return list;
}

int64_t side(const MqarVariantOptions& o) { return int64_t(std::lround(std::sqrt(o.pairs))); }

// As many pairs for the length as there are now.
template <class T>
typename T::Options scaled(typename T::Options o, int64_t length) {
  o.pairs = std::max<int64_t>(1, o.pairs * length / o.T);
  o.T = length;
  return o;
}

Task::OnGpu recall_on_gpu(
    RecallOnGpu::Kind kind,
    const MqarVariantOptions& o,
    int64_t rewrites,
    const std::vector<double>& weights,
    Split split
) {
  const RecallOnGpu gpu{kind, o.T, o.pairs, rewrites, o.vocabulary, o.seed, false, weights};
  if (!gpu.possible()) return {};
  return {
      o.T, o.pairs, [gpu, split](const at::Tensor& indices) { return gpu.make(split, indices); }};
}

}  // namespace

MqarComp::MqarComp(const Options& o)
    : Generated(o), o_(o), weights_(weights(o, "mqar_comp", 5 * o.pairs, (o.T - 3 * o.pairs) / 2)) {
  HORNER_CHECK(
      side(o) * side(o) == o.pairs, "[mqar_comp] pairs must be a square number, got {}", o.pairs
  );
  HORNER_CHECK(
      o.vocabulary / 3 > o.pairs,
      "[mqar_comp] {} pairs need a vocabulary of {}, got {}",
      o.pairs,
      3 * o.pairs + 3,
      o.vocabulary
  );
}

TaskShape MqarComp::shape() const { return {.T = o_.T, .vocabulary = o_.vocabulary}; }

Layout MqarComp::layout(Split) const { return {.T = o_.T, .slices = {"num_kv_pairs", "length"}}; }

void MqarComp::make(Split, int64_t, Random& random, Example& example) const {
  const int64_t third = o_.vocabulary / 3, n = side(o_), P = o_.pairs;
  const auto a = random.distinct(third - 1, n);
  const auto b = random.distinct(third, n);
  const auto values = random.distinct(o_.vocabulary - 2 * third, P);
  const auto order = random.distinct(P, P);
  const auto gaps = random.race(weights_, P);
  for (int64_t j = 0; j < P; ++j) {
    const int64_t pair = order[size_t(j)];
    const int64_t key[] = {1 + a[size_t(pair / n)], third + b[size_t(pair % n)]};
    const int64_t value = 2 * third + values[size_t(j)];
    int64_t* context = example.tokens + 3 * j;
    const int64_t ask = 3 * P + 2 * gaps[size_t(j)];
    std::copy_n(key, 2, context);
    context[2] = value;
    std::copy_n(key, 2, example.tokens + ask);
    example.targets[ask + 1] = value;
  }
  example.slices = {P, o_.T};
}

Task::OnGpu MqarComp::on_gpu(Split split, int64_t) const {
  return recall_on_gpu(RecallOnGpu::Kind::comp, o_, 0, weights_, split);
}

std::shared_ptr<Task> MqarComp::at_length(int64_t T) const {
  Options options = scaled<MqarComp>(o_, T);
  const auto n = int64_t(std::sqrt(double(options.pairs)));
  options.pairs = n * n;
  return std::make_shared<MqarComp>(options);
}

// Who knows one token of the key has sqrt(P) values to choose from.
std::vector<Baseline> MqarComp::baselines() const {
  return {
      {"chance", 1.0 / double(o_.vocabulary - 2 * (o_.vocabulary / 3)), "any value"},
      {"shortcut", 1.0 / double(o_.pairs), "any value of the context"},
      {"half a key", 1.0 / double(side(o_)), "any value whose key has the same second token"}};
}

MqarForget::MqarForget(const Options& o)
    : Generated(o),
      o_(o),
      weights_(weights(
          o,
          "mqar_forget",
          4 * o.pairs + 2 * std::max<int64_t>(0, o.rewrites),
          o.T / 2 - o.pairs - o.rewrites
      )) {
  HORNER_CHECK(
      o.rewrites >= 0 && o.rewrites <= o.pairs,
      "[mqar_forget] rewrites must be 0 .. {}, got {}",
      o.pairs,
      o.rewrites
  );
  HORNER_CHECK(
      o.vocabulary / 2 >= o.pairs + std::max<int64_t>(1, o.rewrites),
      "[mqar_forget] {} pairs and {} rewrites need twice as many ids, got {}",
      o.pairs,
      o.rewrites,
      o.vocabulary
  );
}

TaskShape MqarForget::shape() const { return {.T = o_.T, .vocabulary = o_.vocabulary}; }

Layout MqarForget::layout(Split) const { return {.T = o_.T, .slices = {"num_kv_pairs", "length"}}; }

void MqarForget::make(Split, int64_t, Random& random, Example& example) const {
  const int64_t half = o_.vocabulary / 2, P = o_.pairs, R = o_.rewrites;
  const auto keys = random.distinct(half - 1, P);
  const auto values = random.distinct(o_.vocabulary - half, P + R);
  const auto again = random.distinct(P, R);
  const auto gaps = random.race(weights_, P);
  std::vector<int64_t> last(values.begin(), values.begin() + P);
  for (int64_t j = 0; j < P + R; ++j) {
    const size_t key = size_t(j < P ? j : again[size_t(j - P)]);
    last[key] = values[size_t(j)];
    example.tokens[2 * j] = 1 + keys[key];
    example.tokens[2 * j + 1] = half + values[size_t(j)];
  }
  for (size_t j = 0; j < size_t(P); ++j) {
    const int64_t ask = 2 * (P + R) + 2 * gaps[j];
    example.tokens[ask] = 1 + keys[j];
    example.targets[ask] = half + last[j];
  }
  example.slices = {P, o_.T};
}

Task::OnGpu MqarForget::on_gpu(Split split, int64_t) const {
  return recall_on_gpu(RecallOnGpu::Kind::forget, o_, o_.rewrites, weights_, split);
}

std::shared_ptr<Task> MqarForget::at_length(int64_t T) const {
  Options options = scaled<MqarForget>(o_, T);
  options.rewrites = o_.rewrites * options.pairs / o_.pairs;
  return std::make_shared<MqarForget>(options);
}

std::vector<Baseline> MqarForget::baselines() const {
  const double P = double(o_.pairs), R = double(o_.rewrites);
  return {
      {"chance", 1.0 / double(o_.vocabulary - o_.vocabulary / 2), "any value"},
      {"shortcut", 1 / (P + R), "any value of the context"},
      {"never forgets", 1 - R / P, "the first value of a key"}};
}

MqarStacked::MqarStacked(const Options& o)
    : o_(o), weights_(weights(o, "mqar_stacked", 2 * o.pairs, o.T - o.pairs)) {
  HORNER_CHECK(o.e >= 1, "[mqar_stacked] e must be at least 1, got {}", o.e);
  HORNER_CHECK(
      o.vocabulary >= o.pairs,
      "[mqar_stacked] {} pairs need as many ids, got {}",
      o.pairs,
      o.vocabulary
  );
  HORNER_CHECK(
      o.vocabulary <= kMostNumbers / o.e,
      "[mqar_stacked] the vectors of all ids must have at most {} numbers, got {} times e = {}",
      kMostNumbers,
      o.vocabulary,
      o.e
  );
  Random random = o.random(Split::train, 0, Stream::noise);  // no example draws from it
  for (at::Tensor* table : {&keys_, &values_}) {
    *table = at::empty({o.vocabulary, o.e}, at::kFloat);
    float* data = table->mutable_data_ptr<float>();
    for (int64_t i = 0; i < table->numel(); ++i) {
      data[i] = float(random.normal() / std::sqrt(double(o.e)));
    }
  }
}

TaskShape MqarStacked::shape() const {
  return {.T = o_.T, .vocabulary = o_.vocabulary, .features = 2 * o_.e};
}

Batch MqarStacked::batch(Split split, const std::vector<int64_t>& indices) const {
  segment_of({size(split)}, indices);
  const int64_t B = int64_t(indices.size()), T = o_.T, P = o_.pairs, e = o_.e;
  Batch batch;
  batch.features = at::zeros({B, T, 2 * e}, at::kFloat);
  batch.targets = at::full({B, T}, kNoTarget, at::kLong);
  batch.slices["num_kv_pairs"] = at::full({B}, P, at::kLong);
  float* features = batch.features.mutable_data_ptr<float>();
  int64_t* targets = batch.targets.mutable_data_ptr<int64_t>();
  const float *E_k = keys_.const_data_ptr<float>(), *E_v = values_.const_data_ptr<float>();
  each_example(indices, [&](int64_t row, int64_t index) {
    Random random = o_.random(split, index);
    const auto keys = random.distinct(o_.vocabulary, P), values = random.distinct(o_.vocabulary, P);
    const auto gaps = random.race(weights_, P);
    for (int64_t j = 0; j < P; ++j) {
      const int64_t ask = P + gaps[size_t(j)];
      const float* key = E_k + keys[size_t(j)] * e;
      float* pair = features + (row * T + j) * 2 * e;
      std::copy_n(key, e, pair);
      std::copy_n(E_v + values[size_t(j)] * e, e, pair + e);
      std::copy_n(key, e, features + (row * T + ask) * 2 * e);
      targets[row * T + ask] = values[size_t(j)];
    }
  });
  return batch;
}

std::shared_ptr<Task> MqarStacked::at_length(int64_t T) const {
  return std::make_shared<MqarStacked>(scaled<MqarStacked>(o_, T));
}

std::vector<Baseline> MqarStacked::baselines() const {
  return {
      {"chance", 1.0 / double(o_.vocabulary), "any value"},
      {"shortcut", 1.0 / double(o_.pairs), "any value of the context"}};
}

}  // namespace horner
