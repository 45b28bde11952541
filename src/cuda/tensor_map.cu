#include "cuda/tensor_map.h"

#include <cuda_runtime.h>

namespace horner::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encode() {  // asks the driver, so that we need not link against it
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result
  );
  return result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(found) : nullptr;
}

}  // namespace

cudaError_t encode_tiles(CUtensorMap& map, void* data, const TensorShape& x) {
  static const Encode function = find_encode();
  if (function == nullptr) return cudaErrorNotSupported;
  int device = 0;  // setting the device gives this thread the context that the driver's call needs
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaSetDevice(device);
  if (error != cudaSuccess) return error;
  const cuuint64_t sizes[] = {
      cuuint64_t(x.width), cuuint64_t(x.heads), cuuint64_t(x.T), cuuint64_t(x.B)};
  cuuint64_t strides[] = {
      cuuint64_t(x.stride_h) * 2, cuuint64_t(x.stride_t) * 2, cuuint64_t(x.stride_b) * 2};
  for (int i = 0; i < 3; ++i) {
    if (sizes[i + 1] == 1) strides[i] = 16;  // any valid stride: it is never used
  }
  const cuuint32_t box[] = {64, 1, 64, 1}, steps[] = {1, 1, 1, 1};
  const CUresult result = function(
      &map,
      CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      4,
      data,
      sizes,
      strides,
      box,
      steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
  );
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace horner::cuda
