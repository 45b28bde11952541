#include "lab/compare/speed.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "lab/statistics.h"

namespace horner {
namespace {

constexpr double kLongest = 0.5;  // seconds of a prompt

double seconds(const std::function<void()>& work, at::Device device) {
  const auto wait = [&] {
    if (device.is_cuda()) at::detail::getCUDAHooks().deviceSynchronize(device.index());
  };
  wait();
  const auto start = std::chrono::steady_clock::now();
  work();
  wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

at::Tensor random_input(const ModelOptions& o, int64_t T, at::Device device) {
  if (o.features > 0) return at::randn({1, T, o.features}, at::device(device).dtype(at::kFloat));
  return at::randint(o.vocabulary, {1, T}, at::device(device).dtype(at::kLong));
}

// p in [0,1], between neighbours in proportion.
double quantile(std::vector<double> x, double p) {
  std::sort(x.begin(), x.end());
  const double place = p * double(x.size() - 1);
  const auto low = size_t(place);
  const size_t high = std::min(low + 1, x.size() - 1);
  return x[low] + (place - double(low)) * (x[high] - x[low]);
}

// What is timed of one model at one length, over all rounds.
struct Times {
  int64_t T, state_bytes = 0;
  std::vector<double> prompts, steps;  // seconds
};

// One round of a model. `all` gets a row for each length that was reached.
void time_model(
    const ModelOptions& options,
    const std::vector<int64_t>& lengths,
    at::Device device,
    std::vector<Times>& all
) {
  const auto model = make_model(options, 0);
  model->to(device);
  model->eval();
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t T = lengths[i];
    if (options.positions > 0 && T + kSpeedSteps + 3 > options.positions) return;
    if (i == all.size()) all.push_back({T, 0, {}, {}});
    Times& times = all[i];
    const at::Tensor prompt = random_input(options, T, device),
                     one = random_input(options, 1, device);
    ModelState state;
    const auto read = [&] {
      state = {};
      model->forward(prompt, state);
    };
    seconds(read, device);  // warm-up
    for (int n = 0; n < 2 && (n == 0 || times.prompts.back() < kLongest); ++n)
      times.prompts.push_back(seconds(read, device));
    if (model->causal()) {
      times.state_bytes = state.bytes();
      const auto step = [&] { model->forward(one, state); };
      for (int n = 0; n < 3; ++n) seconds(step, device);
      for (int n = 0; n < kSpeedSteps; ++n) times.steps.push_back(seconds(step, device));
    }
    if (median(times.prompts) > kLongest) return;
  }
}

SpeedPoint point_of(const Times& times) {
  SpeedPoint point{times.T};
  point.prefill = double(times.T) / median(times.prompts);
  point.state_bytes = times.state_bytes;
  if (times.steps.empty()) return point;
  point.decode = 1 / median(times.steps);
  point.decode_p10 = 1 / quantile(times.steps, 0.9);
  point.decode_p90 = 1 / quantile(times.steps, 0.1);
  return point;
}

}  // namespace

std::vector<std::vector<SpeedPoint>> measure_speeds(
    const std::vector<ModelOptions>& models,
    const std::vector<int64_t>& lengths,
    at::Device device,
    const SpeedTell& tell
) {
  const c10::NoGradGuard no_graph;
  std::vector<std::vector<Times>> times(models.size());
  for (int round = 0; round < kSpeedRounds && !lengths.empty(); ++round) {
    for (size_t m = 0; m < models.size(); ++m) {
      if (tell) tell(round, m);
      // Later rounds go as far as the first one.
      std::vector<int64_t> reached = lengths;
      if (round > 0) reached.resize(times[m].size());
      time_model(models[m], reached, device, times[m]);
    }
  }
  std::vector<std::vector<SpeedPoint>> points(models.size());
  for (size_t m = 0; m < models.size(); ++m) {
    for (const Times& t : times[m]) points[m].push_back(point_of(t));
  }
  return points;
}

Json speed_json(const std::vector<SpeedPoint>& points) {
  Json list = Json::array();
  for (const SpeedPoint& p : points)
    list.push_back(
        {{"T", p.T},
         {"prefill", p.prefill},
         {"decode", p.decode},
         {"decode_p10", p.decode_p10},
         {"decode_p90", p.decode_p90},
         {"state_bytes", p.state_bytes}}
    );
  return list;
}

Json Crossover::json() const {
  switch (kind) {
    case Kind::not_measured: return nullptr;
    case Kind::always: return "always";
    case Kind::never: return "never";
    case Kind::not_resolved: return "not resolved";
    case Kind::between: return {{"low", low}, {"high", high}};
  }
  return nullptr;
}

Crossover decode_crossover(
    const std::vector<SpeedPoint>& mixer, const std::vector<SpeedPoint>& softmax
) {
  const size_t n = std::min(mixer.size(), softmax.size());
  std::vector<int> faster;  // 1: yes, -1: slower, 0: cannot be told
  for (size_t i = 0; i < n; ++i) {
    const SpeedPoint &a = mixer[i], &b = softmax[i];
    if (a.decode <= 0 || b.decode <= 0) return {};
    faster.push_back(a.decode_p10 > b.decode_p90 ? 1 : a.decode_p90 < b.decode_p10 ? -1 : 0);
  }
  if (n == 0) return {};
  using Kind = Crossover::Kind;
  size_t first = n;  // of the lengths at the end at which it is faster
  while (first > 0 && faster[first - 1] == 1) --first;
  const auto before = [&](int value) {
    return std::count(faster.begin(), faster.begin() + ptrdiff_t(first), value);
  };
  if (first == 0) return {Kind::always};
  if (first == n) return {before(-1) == int64_t(n) ? Kind::never : Kind::not_resolved};
  if (before(1) > 0) return {Kind::not_resolved};  // faster, and then not
  Crossover between{Kind::between, 0, mixer[first].T};
  for (size_t i = 0; i < first && faster[i] == -1; ++i) between.low = mixer[i].T;
  return between;
}

int64_t memory_crossover(const ModelOptions& model, const ModelOptions& growing) {
  const auto bytes = [](const ModelOptions& o, int64_t T) { return state_bytes(o, T); };
  const int64_t slope = bytes(growing, 33) - bytes(growing, 32);
  if (slope <= 0 || bytes(model, 257) > bytes(model, 256)) return -1;  // or it grows as well
  const int64_t own = bytes(model, 256), start = bytes(growing, 32) - 32 * slope;
  if (own < start + slope) return 0;
  return (own - start) / slope + 1;
}

}  // namespace horner
