// How long a call takes: the clock on a CPU, events around eager calls and graph replays on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace horner {

struct Times {
  double median = 0, p10 = 0, p90 = 0;  // ms; 0: not measured
};
Times times_of(std::vector<double> ms);

using Work = std::function<void()>;

// The timer of a device. libhorner_cuda.so exports the GPU's as horner_gpu_timer. With one call per run the cache is cleared
// before each call. With more calls the work uses more memory than a cache holds, and the time is divided by their number.
struct Timer {
  Times (*eager)(const Work&, int repeats, int calls);
  Times (*replay)(const Work&, int repeats, int calls);  // captured once as a graph; null: none
  int64_t (*peak_bytes)(const Work&);  // extra memory that a call needs; null: not known
  int (*clock_mhz)();                  // of the processors, now; null: not known
};
const Timer& timer(at::Device);

}  // namespace horner
