// CUDA graphs of training steps.
//
// Several threads may train at once, so a capture concerns only its own thread: another thread may allocate pinned memory or
// wait for its own stream meanwhile. Captures come one after the other, because they share the default generator.
#include <ATen/Functions.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>

#include <mutex>

#include "train/replay.h"

namespace horner {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

std::recursive_mutex& one_capture() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

// A capture cannot use memory that the allocator keeps from eager work or from graphs that are gone, and during a capture the
// allocator gives nothing back. So it is asked before and after.
void return_memory_if_low() {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess && free < total / 4 * 3) allocator::emptyCache();
}

class CudaReplay : public Replay {
 public:
  explicit CudaReplay(c10::MempoolId_t pool)
      : pool_(pool), graph_(std::make_unique<at::cuda::CUDAGraph>()) {}
  ~CudaReplay() override {
    const std::lock_guard<std::recursive_mutex> lock(one_capture());
    graph_.reset();
    return_memory_if_low();
  }
  void run() override { graph_->replay(); }
  at::cuda::CUDAGraph& graph() { return *graph_; }
  c10::MempoolId_t pool() const { return pool_; }

 private:
  const c10::MempoolId_t pool_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
};

// Ends a capture that failed: torch's own end throws before it has told the allocator.
void abandon(cudaStream_t stream, c10::DeviceIndex device, c10::MempoolId_t pool) {
  cudaGraph_t broken = nullptr;
  cudaStreamEndCapture(stream, &broken);
  if (broken != nullptr) cudaGraphDestroy(broken);
  (void)cudaGetLastError();  // forget the failure
  allocator::endAllocateToPool(device, pool);
  allocator::releasePool(device, pool);
  at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool);
  at::getHostAllocator(at::kCUDA)->release_pool(pool);
}

// The default generator stays in its capturing state after a failure; the end of a whole capture frees it.
void free_generator(const at::Tensor& number) {
  at::cuda::CUDAGraph graph;
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  number.zero_();
  graph.capture_end();
}

std::unique_ptr<Replay> record(
    const std::function<void()>& work, std::string& why, const Replay* beside
) {
  const std::lock_guard<std::recursive_mutex> lock(one_capture());
  const at::cuda::CUDAStream stream = at::cuda::getCurrentCUDAStream();
  const at::Tensor number = at::zeros({1}, at::device(stream.device()).dtype(at::kFloat));
  C10_CUDA_CHECK(cudaStreamSynchronize(stream));
  return_memory_if_low();
  const auto* other = static_cast<const CudaReplay*>(beside);
  const c10::MempoolId_t pool = other != nullptr ? other->pool() : at::cuda::graph_pool_handle();
  auto replay = std::make_unique<CudaReplay>(pool);
  replay->graph().capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  try {
    work();
    replay->graph().capture_end();
    return replay;
  } catch (const std::exception& error) {
    why = error.what();
    why = why.substr(0, why.find('\n'));
  }
  abandon(stream, stream.device_index(), pool);
  free_generator(number);
  return nullptr;
}

}  // namespace

ReplayKernels cuda_replay_kernels() { return {record}; }

}  // namespace horner
