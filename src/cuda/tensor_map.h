// A tensor (B,T,heads,width) of bf16 for the copy engine: boxes of 64 tokens by 64 columns of one head, swizzled
// like the tiles of sm90.cuh.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace horner::cuda {

struct TensorShape {
  int64_t B, T, heads, width;
  int64_t stride_b, stride_t, stride_h;  // elements
};
cudaError_t encode_tiles(CUtensorMap& map, void* data, const TensorShape& shape);

}  // namespace horner::cuda
