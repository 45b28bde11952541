// Log-decays to base 2, for the instruction ex2.
#pragma once

namespace horner::cuda {

constexpr float kLog2e = 1.4426950408889634f;  // log2 of e
constexpr float kNothingLeft = -127.f;         // 2^-127 is 0 in exp2_fast

// log2 of e^g, at least -127. So a reset (g = -inf) stays finite, and no difference of two sums is NaN.
__device__ inline float log2_decay(float g) { return fmaxf(g * kLog2e, kNothingLeft); }

// The sum over this lane of a warp and all lanes before it.
__device__ __forceinline__ float sum_to_lane(float x, int lane) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const float other = __shfl_up_sync(~0u, x, d);
    if (lane >= d) x += other;
  }
  return x;
}

}  // namespace horner::cuda
