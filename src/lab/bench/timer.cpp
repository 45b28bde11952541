#include "lab/bench/timer.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>

#include "core/check.h"
#include "lab/statistics.h"

namespace horner {
namespace {

Times clocked(const Work& work, int repeats, int calls) {
  using Clock = std::chrono::steady_clock;
  work();
  std::vector<double> ms;
  for (int i = 0; i < repeats; ++i) {
    const Clock::time_point start = Clock::now();
    work();
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count() / calls);
  }
  return times_of(ms);
}

}  // namespace

Times times_of(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double share) { return ms[size_t(share * double(ms.size() - 1) + 0.5)]; };
  return {median(ms), at(0.1), at(0.9)};
}

const Timer& timer(at::Device device) {
  static const Timer cpu{clocked, nullptr, nullptr, nullptr};
  if (device.is_cpu()) return cpu;
  using Find = const Timer* (*)();
  const auto find = reinterpret_cast<Find>(dlsym(RTLD_DEFAULT, "horner_gpu_timer"));
  if (find == nullptr) throw DeviceError("device {}: libhorner_cuda.so has no timer", device.str());
  return *find();
}

}  // namespace horner
