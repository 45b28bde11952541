// `power`: Delta_t = do_t.o_t, the first step of the chunked and of the parallel backward.
#pragma once

#include "cuda/sm90.cuh"
#include "ops/power/power.cuh"

namespace horner::cuda {
namespace {

constexpr int kDeltaThreads = 256, kDeltaLanes = 8;  // threads of a block; lanes of a token

// The token and head of a thread. Blocks (tokens and heads, b): neighbouring threads read neighbouring memory.
struct DeltaToken {
  int64_t b, t, h;
  bool first = threadIdx.x % kDeltaLanes == 0;  // the first lane of the token

  __device__ explicit DeltaToken(int64_t H) : b(blockIdx.y) {
    const unsigned heads = unsigned(H);
    const unsigned th = (blockIdx.x * kDeltaThreads + threadIdx.x) / kDeltaLanes;
    t = th / heads;
    h = th % heads;
  }
  static dim3 blocks(int64_t B, int64_t T, int64_t H) {
    constexpr int kTokens = kDeltaThreads / kDeltaLanes;
    return dim3(unsigned((T * H + kTokens - 1) / kTokens), unsigned(B));
  }
};

// do.(o + rest), in all lanes of the token; rest: the rounding error of o.
__device__ inline float delta_of(
    const DeltaToken& at, const Rows& o, const Rows& rest, const Rows& dO, int V, bool inside
) {
  float sum = 0.f;
  const auto row = [&](const Rows& x) {
    return static_cast<const __nv_bfloat16*>(x.data) + at.b * x.b + at.t * x.t + at.h * x.h;
  };
  const __nv_bfloat16 *from_o = row(o), *from_rest = row(rest), *from_dO = row(dO);
#pragma unroll 2
  for (int c = 8 * (threadIdx.x % kDeltaLanes); inside && c < V; c += 8 * kDeltaLanes) {
    const uint4 a = *reinterpret_cast<const uint4*>(from_o + c),
                r = *reinterpret_cast<const uint4*>(from_rest + c),
                d = *reinterpret_cast<const uint4*>(from_dO + c);
    const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {r.x, r.y, r.z, r.w},
                   z[4] = {d.x, d.y, d.z, d.w};
#pragma unroll
    for (int n = 0; n < 4; ++n)
      sum += (low_half(x[n]) + low_half(y[n])) * low_half(z[n]) +
             (high_half(x[n]) + high_half(y[n])) * high_half(z[n]);
  }
#pragma unroll
  for (int d = 1; d < kDeltaLanes; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
  return sum;
}

}  // namespace
}  // namespace horner::cuda
