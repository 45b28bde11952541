// `linear`, level 2, norm = sum: the sums that enter the chunks, and the gradient of the numerator.
#include "cuda/decay.cuh"
#include "cuda/sm90.cuh"
#include "ops/linear/linear.cuh"

namespace horner::cuda {
namespace {

constexpr int kSumThreads = 128, kTokenThreads = 256;

__device__ const __nv_bfloat16* row_of(const Rows& x, int64_t b, int64_t t, int64_t h) {
  return static_cast<const __nv_bfloat16*>(x.data) + b * x.b + t * x.t + (h / x.group) * x.h;
}

struct Eight {
  float x[8];
};
__device__ Eight eight_of(uint4 y) {
  return {
      low_half(y.x),
      high_half(y.x),
      low_half(y.y),
      high_half(y.y),
      low_half(y.z),
      high_half(y.z),
      low_half(y.w),
      high_half(y.w)};
}

// Block (i, b, h) owns the i-th chunk of a head, in the sweep's direction. A thread owns 8 columns of every kRows-th token.
// Warp 0 computes the weights while the tokens load.
template <int kWidth>
__global__ void __launch_bounds__(kSumThreads) sums_kernel(const __grid_constant__ Sums p) {
  constexpr int kUnits = kWidth / 8, kRows = kSumThreads / kUnits, kEach = kChunk / kRows;
  __shared__ float weights[kChunk], sums[kRows][kWidth];
  const int64_t chunks = (p.T + kChunk - 1) / kChunk, i = blockIdx.x / (p.B * p.heads);
  const int64_t b = blockIdx.x / p.heads % p.B, h = blockIdx.x % p.heads;
  const int64_t start = (p.reverse ? chunks - 1 - i : i) * kChunk, slot = (1 + i) * p.B * p.heads;
  const int tokens = int(min(int64_t(kChunk), p.T - start));
  const int unit = int(threadIdx.x) % kUnits, row = int(threadIdx.x) / kUnits;
  uint4 x[kEach] = {};
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    const int t = row + n * kRows;
    if (t < tokens && 8 * unit < p.K)
      x[n] = *reinterpret_cast<const uint4*>(row_of(p.x, b, start + t, h) + 8 * unit);
  }
  if (threadIdx.x < 32) {
    const int lane = int(threadIdx.x);
    float2 w = {1.f, 1.f};
    if (p.g.data) {  // as prepare_decay in stages.cuh
      const float* g = static_cast<const float*>(p.g.data) + b * p.g.b + (h / p.g.group) * p.g.h;
      const auto decay = [&](int t) {
        return t < tokens ? log2_decay(g[(start + t) * p.g.t]) : 0.f;
      };
      const float first = decay(2 * lane), second = decay(2 * lane + 1);
      const float sum = sum_to_lane(first + second, lane);
      const float last = __shfl_sync(~0u, sum, 31), before = __shfl_up_sync(~0u, sum, 1);
      const float G = (lane == 0 ? 0.f : before) + first;
      w = {exp2_fast(p.reverse ? G : last - G), exp2_fast(p.reverse ? sum : last - sum)};
      if (lane == 0) p.decays[slot + b * p.heads + h] = last;
    }
    if (p.factor) {
      const float* f = p.factor + ((b * p.heads + h) * chunks) * kChunk + start + 2 * lane;
      w.x *= f[0];
      w.y *= f[1];
    }
    weights[2 * lane] = w.x;
    weights[2 * lane + 1] = w.y;
  }
  __syncthreads();
  Eight sum = {};
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    const Eight y = eight_of(x[n]);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum.x[e] += weights[row + n * kRows] * y.x[e];
  }
#pragma unroll
  for (int e = 0; e < 8; ++e) sums[row][8 * unit + e] = sum.x[e];
  __syncthreads();
  if (threadIdx.x >= kWidth) return;
  float all = 0.f;
#pragma unroll
  for (int n = 0; n < kRows; ++n) all += sums[n][threadIdx.x];
  p.sums[(slot + b * p.heads + h) * kWidth + threadIdx.x] = all;
}

// 8 lanes (V <= 64) or 16 lanes own one token of a head, 8 values each. Tokens after the end get Delta = 0.
__global__ void __launch_bounds__(kTokenThreads)
    divide_kernel(const __grid_constant__ DividedGradient p, int lanes) {
  const int64_t padded = (p.T + kChunk - 1) / kChunk * kChunk;
  const int64_t index = int64_t(blockIdx.x) * (kTokenThreads / lanes) + threadIdx.x / lanes;
  const int64_t h = index % p.H, t = index / p.H % padded, b = index / p.H / padded;
  const int lane = int(threadIdx.x) % lanes;
  const bool inside = b < p.B && t < p.T;
  const float den = inside ? p.den[(b * p.H + h) * p.T + t] : 0.f;
  const float floor = inside && p.floor ? p.floor[(b * p.H + h) * padded + t] : p.eps;
  const float size = p.floor ? fabsf(den) : den, factor = 1.f / fmaxf(size, floor);
  const float slope = size < floor ? 0.f : den < 0.f ? -1.f : 1.f;  // of max(|den|, floor)
  for (int first = 0, block = 0; first < p.V; first += 128, ++block) {
    const int column = first + 8 * lane;
    float shift = 0.f;
    if (inside && column < p.V) {
      const auto load = [&](const Rows& x) {
        return *reinterpret_cast<const uint4*>(row_of(x, b, t, h) + column);
      };
      const Eight o = eight_of(load(p.o)), rest = eight_of(load(p.rest)),
                  out = eight_of(load(p.out));
      uint32_t pairs[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        pairs[e] = pack(out.x[2 * e] * factor, out.x[2 * e + 1] * factor);
        shift += low_half(pairs[e]) * (o.x[2 * e] + rest.x[2 * e]) +
                 high_half(pairs[e]) * (o.x[2 * e + 1] + rest.x[2 * e + 1]);
      }
      *reinterpret_cast<uint4*>(const_cast<__nv_bfloat16*>(row_of(p.divided, b, t, h)) + column) = {
          pairs[0], pairs[1], pairs[2], pairs[3]};
    }
    for (int d = 1; d < lanes; d *= 2) shift += __shfl_xor_sync(~0u, shift, d);
    if (lane == 0 && b < p.B) p.shift[((block * p.B + b) * p.H + h) * padded + t] = slope * shift;
  }
}

}  // namespace

cudaError_t chunk_sums(const Sums& p, cudaStream_t stream) {
  const int64_t chunks = (p.T + kChunk - 1) / kChunk, heads = p.B * p.heads;
  const auto kernel = p.width == 64 ? sums_kernel<64> : sums_kernel<128>;
  kernel<<<unsigned(chunks * heads), kSumThreads, 0, stream>>>(p);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  const float* decays = p.g.data ? p.decays : nullptr;
  return join_parts(p.sums, decays, int(chunks) + 2, heads * p.width, p.width, stream);
}

cudaError_t divide_gradient(const DividedGradient& p, cudaStream_t stream) {
  const int lanes = p.V <= 64 ? 8 : 16, each = kTokenThreads / lanes;
  const int64_t tokens = p.B * p.H * ((p.T + kChunk - 1) / kChunk * kChunk);
  divide_kernel<<<unsigned((tokens + each - 1) / each), kTokenThreads, 0, stream>>>(p, lanes);
  return cudaGetLastError();
}

}  // namespace horner::cuda
