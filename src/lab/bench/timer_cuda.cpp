// CUDA events around eager calls and graph replays. Before a single call 256 MB are written to clear the L2 cache of 60 MB.
// Many calls on distinct memory clear it themselves, and each call pays for the write-back of the call before.
#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <dlfcn.h>

#include "lab/bench/timer.h"

namespace horner {
namespace {

constexpr double kWarmUpMs = 50,
                 kEnoughMs = 2000;  // after that no more repeats: the call is slow

struct Event {
  cudaEvent_t event;
  Event() { C10_CUDA_CHECK(cudaEventCreate(&event)); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() { C10_CUDA_CHECK(cudaEventRecord(event, at::cuda::getCurrentCUDAStream())); }
};

double ms_between(Event& start, Event& end) {
  float ms = 0;
  C10_CUDA_CHECK(cudaEventSynchronize(end.event));
  C10_CUDA_CHECK(cudaEventElapsedTime(&ms, start.event, end.event));
  return double(ms);
}

Times events(const Work& work, int repeats, int calls) {
  at::Tensor flush;
  if (calls == 1) flush = at::empty({1 << 26}, at::device(at::kCUDA).dtype(at::kFloat));  // 256 MB
  Event start, end;
  double warm = 0;
  for (int i = 0; warm < kWarmUpMs && i < repeats; ++i) {
    start.record();
    work();
    end.record();
    warm += ms_between(start, end);
  }
  std::vector<double> ms;
  double spent = 0;
  for (int i = 0; i < repeats && spent < kEnoughMs; ++i) {
    if (flush.defined()) flush.fill_(float(i));
    start.record();
    work();
    end.record();
    const double taken = ms_between(start, end);
    spent += taken;
    ms.push_back(taken / calls);
  }
  return times_of(ms);
}

Times eager(const Work& work, int repeats, int calls) {
  const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
  return events(work, repeats, calls);
}

Times replay(const Work& work, int repeats, int calls) {
  const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());  // a graph needs one
  at::cuda::CUDAGraph graph;
  for (int i = 0; i < 3; ++i) work();
  C10_CUDA_CHECK(cudaStreamSynchronize(at::cuda::getCurrentCUDAStream()));
  graph.capture_begin();
  work();
  graph.capture_end();
  return events([&] { graph.replay(); }, repeats, calls);
}

int64_t peak_bytes(const Work& work) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  const c10::DeviceIndex device = at::cuda::current_device();
  constexpr size_t kAll = size_t(c10::CachingAllocator::StatType::AGGREGATE);
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  const int64_t held = allocator::getDeviceStats(device).allocated_bytes[kAll].current;
  allocator::resetPeakStats(device);
  work();
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  return allocator::getDeviceStats(device).allocated_bytes[kAll].peak - held;
}

// NVML's clock of the SMs; 0 if it is not known.
int clock_mhz() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
  if (library == nullptr) return 0;
  const auto find = [&]<class F>(const char* name, F*) {
    return reinterpret_cast<F*>(dlsym(library, name));
  };
  using Init = int();
  using Handle = int(unsigned, void**);
  using Clock = int(void*, int, unsigned*);
  Init* init = find("nvmlInit_v2", static_cast<Init*>(nullptr));
  Handle* handle = find("nvmlDeviceGetHandleByIndex_v2", static_cast<Handle*>(nullptr));
  Clock* clock = find("nvmlDeviceGetClockInfo", static_cast<Clock*>(nullptr));
  void* device = nullptr;
  unsigned mhz = 0;
  constexpr int kSm = 1;
  if (!init || !handle || !clock || init() != 0 || handle(0, &device) != 0) return 0;
  return clock(device, kSm, &mhz) == 0 ? int(mhz) : 0;
}

}  // namespace
}  // namespace horner

extern "C" const horner::Timer* horner_gpu_timer() {
  static const horner::Timer gpu{
      horner::eager, horner::replay, horner::peak_bytes, horner::clock_mhz};
  return &gpu;
}
