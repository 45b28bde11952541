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

}  // namespace

std::vector<SpeedPoint> measure_speed(
    const ModelOptions& options, const std::vector<int64_t>& lengths, at::Device device
) {
  const c10::NoGradGuard no_graph;
  const auto model = make_model(options, 0);
  model->to(device);
  model->eval();
  std::vector<SpeedPoint> points;
  for (const int64_t T : lengths) {
    if (options.positions > 0 && T + 16 > options.positions) break;
    const at::Tensor prompt = random_input(options, T, device),
                     one = random_input(options, 1, device);
    ModelState state;
    const auto read = [&] {
      state = {};
      model->forward(prompt, state);
    };
    seconds(read, device);  // warm-up
    std::vector<double> times;
    while (times.size() < 5 && (times.empty() || times.back() < kLongest))
      times.push_back(seconds(read, device));
    SpeedPoint point{T};
    point.prefill = double(T) / median(times);
    if (model->causal()) {
      point.state_bytes = state.bytes();
      const auto step = [&] { model->forward(one, state); };
      for (int i = 0; i < 3; ++i) seconds(step, device);
      std::vector<double> steps;
      for (int i = 0; i < 13; ++i) steps.push_back(seconds(step, device));
      point.decode = 1 / median(steps);
    }
    points.push_back(point);
    if (median(times) > kLongest) break;
  }
  return points;
}

Json speed_json(const std::vector<SpeedPoint>& points) {
  Json list = Json::array();
  for (const SpeedPoint& p : points)
    list.push_back(
        {{"T", p.T}, {"prefill", p.prefill}, {"decode", p.decode}, {"state_bytes", p.state_bytes}}
    );
  return list;
}

double decode_crossover(
    const std::vector<SpeedPoint>& mixer, const std::vector<SpeedPoint>& softmax
) {
  double before = 0, place = 0;  // log of the ratio of speeds, log of the length
  for (size_t i = 0; i < std::min(mixer.size(), softmax.size()); ++i) {
    if (mixer[i].decode <= 0 || softmax[i].decode <= 0) return -1;
    const double ratio = std::log(mixer[i].decode / softmax[i].decode);
    const double T = std::log(double(mixer[i].T));
    if (ratio >= 0) return i == 0 ? 0 : std::exp(place + (T - place) * -before / (ratio - before));
    before = ratio;
    place = T;
  }
  return -1;
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
