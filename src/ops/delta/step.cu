// `delta`, one token: the state is read once and written once.
//
//   u = k S, w = q S    e = v - a u    o = scale (a w + b (q.k) e)    S' = a S + b k^T e
#include "cuda/launch.cuh"
#include "cuda/types.cuh"
#include "ops/delta/delta.cuh"

namespace horner::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kColumns = 128;  // of a block

// A block owns up to 128 columns of the state of one (b, h): a lane four of them, a warp kRows rows, in registers.
template <class T, int kRows>
__global__ void __launch_bounds__(kThreads) step_kernel(const __grid_constant__ DeltaTokens p) {
  __shared__ float q[kWarps * kRows], k[kWarps * kRows], product[kWarps];
  __shared__ float4 known[kWarps][32], asked[kWarps][32];  // k S, q S
  const int blocks = (p.V + kColumns - 1) / kColumns, lane = threadIdx.x % 32,
            warp = threadIdx.x / 32;
  const int64_t bh = blockIdx.x / unsigned(blocks);
  const int column = int(blockIdx.x % unsigned(blocks)) * kColumns + 4 * lane;
  const int first = warp * kRows;
  float4 S[kRows];
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const int64_t at = (bh * p.K + first + j) * p.V + column;
    const bool in = p.first && first + j < p.K && column < p.V;
    S[j] = in ? *reinterpret_cast<const float4*>(static_cast<const float*>(p.first) + at)
              : float4{0.f, 0.f, 0.f, 0.f};
  }
  float own = 0.f;
  for (int r = threadIdx.x; r < kWarps * kRows; r += kThreads) {
    q[r] = r < p.K ? wide<float>(static_cast<const T*>(p.q)[bh * p.K + r]) : 0.f;
    k[r] = r < p.K ? wide<float>(static_cast<const T*>(p.k)[bh * p.K + r]) : 0.f;
    own += q[r] * k[r];
  }
#pragma unroll
  for (int d = 1; d < 32; d *= 2) own += __shfl_xor_sync(~0u, own, d);
  if (lane == 0) product[warp] = own;
  __syncthreads();
  float4 u = {0.f, 0.f, 0.f, 0.f}, w = u;
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const float x = k[first + j], y = q[first + j];
    u.x += x * S[j].x, u.y += x * S[j].y, u.z += x * S[j].z, u.w += x * S[j].w;
    w.x += y * S[j].x, w.y += y * S[j].y, w.z += y * S[j].z, w.w += y * S[j].w;
  }
  known[warp][lane] = u;
  asked[warp][lane] = w;
  __syncthreads();
  u = w = {0.f, 0.f, 0.f, 0.f};
  float qk = 0.f;
#pragma unroll
  for (int n = 0; n < kWarps; ++n) {
    const float4 x = known[n][lane], y = asked[n][lane];
    u.x += x.x, u.y += x.y, u.z += x.z, u.w += x.w;
    w.x += y.x, w.y += y.y, w.z += y.z, w.w += y.w;
    qk += product[n];
  }
  if (column >= p.V) return;
  const float a = p.g ? expf(static_cast<const float*>(p.g)[bh]) : 1.f;
  const float b = static_cast<const float*>(p.beta)[bh];
  const T* v = static_cast<const T*>(p.v) + bh * p.V + column;
  const float4 e = {
      wide<float>(v[0]) - a * u.x,
      wide<float>(v[1]) - a * u.y,
      wide<float>(v[2]) - a * u.z,
      wide<float>(v[3]) - a * u.w};
  if (warp == 0) {
    T* o = static_cast<T*>(p.o) + bh * p.V + column;
    const float scale = float(p.scale), c = b * qk;
    o[0] = narrow<T>(scale * (a * w.x + c * e.x));
    o[1] = narrow<T>(scale * (a * w.y + c * e.y));
    o[2] = narrow<T>(scale * (a * w.z + c * e.z));
    o[3] = narrow<T>(scale * (a * w.w + c * e.w));
  }
  if (!p.last) return;
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    if (first + j >= p.K) continue;
    const float x = b * k[first + j];
    const float4 next = {
        a * S[j].x + x * e.x, a * S[j].y + x * e.y, a * S[j].z + x * e.z, a * S[j].w + x * e.w};
    const int64_t at = (bh * p.K + first + j) * p.V + column;
    *reinterpret_cast<float4*>(static_cast<float*>(p.last) + at) = next;
  }
}

template <class T>
cudaError_t run(const DeltaTokens& p, cudaStream_t stream) {
  const int64_t blocks = p.B * p.H * ((p.V + kColumns - 1) / kColumns);
  const auto kernel = p.K <= 64    ? step_kernel<T, 8>
                      : p.K <= 128 ? step_kernel<T, 16>
                                   : step_kernel<T, 32>;
  return launch(kernel, blocks, kThreads, size_t(0), stream, p);
}

}  // namespace

cudaError_t delta_step(const DeltaTokens& p, cudaStream_t stream) {
  switch (p.type) {
    case Type::f32: return run<float>(p, stream);
    case Type::f16: return run<__half>(p, stream);
    case Type::bf16: return run<__nv_bfloat16>(p, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace horner::cuda
