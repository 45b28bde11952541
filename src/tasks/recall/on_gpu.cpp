#include "tasks/recall/on_gpu.h"

#include "core/check.h"

namespace horner {
namespace {

constexpr int64_t kMostSharedBytes = 48 * 1024;

}  // namespace

RecallKernel& recall_kernel() {
  static RecallKernel kernel = nullptr;
  return kernel;
}

bool RecallOnGpu::possible() const {
  const int64_t ints = std::max(vocabulary, pairs) + 5 * (pairs + rewrites);
  return recall_kernel() != nullptr && 8 * int64_t(weights.size()) + 4 * ints <= kMostSharedBytes;
}

GpuBatch RecallOnGpu::make(Split split, const at::Tensor& indices) const {
  HORNER_CHECK(possible(), "[task] this batch cannot be made on a GPU");
  return recall_kernel()(*this, split, indices);
}

}  // namespace horner
