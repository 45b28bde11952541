// A block owns 64 channels of one batch row and walks over time, with 64 tokens at once in shared memory. Four lanes own a
// channel; each lane holds 4 of its 16 numbers h in registers. A warp owns 8 channels.
#include "nn/selective_scan.cuh"

#include "cuda/decay.cuh"
#include "cuda/launch.cuh"
#include "cuda/types.cuh"

namespace horner::cuda {
namespace {

constexpr int kTokens = kScanTokens, kChannels = kScanChannels, kN = kScanStates;
constexpr int kThreads = 4 * kChannels, kWarps = kThreads / 32;
constexpr int kSub = 8;  // tokens whose h are in registers at once, in the backward

struct Tile {
  float u[kTokens][kChannels], dt[kTokens][kChannels], dy[kTokens][kChannels];
  float B[kTokens][kN], C[kTokens][kN];
};

// Shared memory of the backward: h before every 8th token, and each warp's share of dB and dC for 8 tokens.
struct Kept {
  float4 h[kTokens / kSub][kThreads];
  float dBC[kWarps][kSub][32];
};

struct Place {
  int64_t b, channel;  // of this thread
  int64_t first;       // channel of the block
  int in_block, part;  // channel in the block; which 4 of the 16
  bool any;
  __device__ explicit Place(const SelectiveScan& p)
      : b(blockIdx.x),
        first(int64_t(blockIdx.y) * kChannels),
        in_block(int(threadIdx.x) / 4),
        part(int(threadIdx.x) % 4) {
    channel = first + in_block;
    any = channel < p.E;
  }
};

// f(row, column, index in (B,T,E)) for the tokens t .. t+63 of the block's channels, as far as they exist.
template <class F>
__device__ void for_tile(const SelectiveScan& p, const Place& me, int64_t t, F&& f) {
  for (int i = int(threadIdx.x); i < kTokens * kChannels; i += kThreads) {
    const int row = i / kChannels, column = i % kChannels;
    if (t + row < p.T && me.first + column < p.E)
      f(row, column, (me.b * p.T + t + row) * p.E + me.first + column);
  }
}

// 0 beyond the end: such a token changes nothing.
template <class T, bool kBack>
__device__ void load_tile(Tile& m, const SelectiveScan& p, const Place& me, int64_t t) {
  if (t + kTokens > p.T || me.first + kChannels > p.E) {
    for (int i = int(threadIdx.x); i < int(sizeof(Tile) / 4); i += kThreads)
      reinterpret_cast<float*>(&m)[i] = 0.f;
    __syncthreads();
  }
  for_tile(p, me, t, [&](int row, int column, int64_t at) {
    m.u[row][column] = wide<float>(static_cast<const T*>(p.u)[at]);
    m.dt[row][column] = p.dt[at];
    if (kBack) m.dy[row][column] = p.dy[at];
  });
  for (int i = int(threadIdx.x); i < kTokens * kN; i += kThreads) {
    if (t + i / kN >= p.T) break;
    const int64_t at = (me.b * p.T + t) * kN + i;
    m.B[i / kN][i % kN] = p.Bt[at];
    m.C[i / kN][i % kN] = p.Ct[at];
  }
}

__device__ float4 four(const float (&row)[kN], int part) {
  return *reinterpret_cast<const float4*>(row + 4 * part);
}

// e^{A dt}, from A log2 e
__device__ float4 decay(const float4& A, float dt) {
  return {exp2f(A.x * dt), exp2f(A.y * dt), exp2f(A.z * dt), exp2f(A.w * dt)};
}
__device__ float4 step(const float4& a, const float4& h, float x, const float4& B) {
  return {a.x * h.x + x * B.x, a.y * h.y + x * B.y, a.z * h.z + x * B.z, a.w * h.w + x * B.w};
}
__device__ float dot(const float4& a, const float4& b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
__device__ float4 times(const float4& a, const float4& b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
__device__ float4 plus(const float4& a, float x, const float4& b) {
  return step({1, 1, 1, 1}, a, x, b);
}
__device__ float of_channel(float x) {  // the sum over a channel's four lanes
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

__device__ float4 load_A(const SelectiveScan& p, const Place& me) {
  if (!me.any) return {0, 0, 0, 0};
  const float4 A = *reinterpret_cast<const float4*>(p.A + me.channel * kN + 4 * me.part);
  return {A.x * kLog2e, A.y * kLog2e, A.z * kLog2e, A.w * kLog2e};
}

// Address of a thread's four numbers in (B, blocks, E, N).
__device__ float4* mark(const SelectiveScan& p, const Place& me, int64_t block) {
  const int64_t blocks = (p.T + kTokens - 1) / kTokens;
  return reinterpret_cast<float4*>(
      p.marks + ((me.b * blocks + block) * p.E + me.channel) * kN + 4 * me.part
  );
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ SelectiveScan p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Tile& m = *reinterpret_cast<Tile*>(memory);
  const Place me(p);
  const float4 A = load_A(p, me);
  float4 h = {0, 0, 0, 0};
  for (int64_t t = 0; t < p.T; t += kTokens) {
    if (me.any) *mark(p, me, t / kTokens) = h;
    __syncthreads();
    load_tile<T, false>(m, p, me, t);
    __syncthreads();
#pragma unroll 4
    for (int i = 0; i < kTokens; ++i) {
      const float dt = m.dt[i][me.in_block];
      h = step(decay(A, dt), h, dt * m.u[i][me.in_block], four(m.B[i], me.part));
      const float y = of_channel(dot(four(m.C[i], me.part), h));
      if (me.part == 0) m.dy[i][me.in_block] = y;
    }
    __syncthreads();
    for_tile(p, me, t, [&](int row, int column, int64_t at) { p.y[at] = m.dy[row][column]; });
  }
  if (me.any) *reinterpret_cast<float4*>(p.last + (me.b * p.E + me.channel) * kN + 4 * me.part) = h;
}

// Sums 8 values over the 8 channels of a warp. Lane l ends with the sum of value l / 4. In each round a lane gives half of its
// values to its partner and sums the other half.
__device__ float sum_over_channels(float (&x)[8]) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int half = 4; half >= 1; half /= 2) {  // channels 4, 2, 1 apart
    const bool upper = lane & (4 * half);
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float give = upper ? x[i] : x[i + half], keep = upper ? x[i + half] : x[i];
      x[i] = keep + __shfl_xor_sync(~0u, give, 4 * half);
    }
  }
  return x[0];
}

// One token, backwards: du, ddt, this warp's share of dB and dC, and dA; dh goes from h_t to h_{t-1}.
__device__ __forceinline__ void backward_token(
    float4& dh,
    float4& dA,
    float& dBC,
    Tile& m,
    const float4& A,
    const float4& before,
    int row,
    const Place& me
) {
  const float dt = m.dt[row][me.in_block], u = m.u[row][me.in_block], dy = m.dy[row][me.in_block];
  const float4 a = decay(A, dt), B = four(m.B[row], me.part);
  const float4 now = step(a, before, dt * u, B);  // h_t
  dh = plus(dh, dy, four(m.C[row], me.part));
  const float x = of_channel(dot(dh, B));
  const float4 w = times(times(dh, before), a);
  const float with_A = of_channel(dot(w, A)) * (1.f / kLog2e);  // A here is A log2 e
  dA = plus(dA, dt, w);
  if (me.part == 0) m.dy[row][me.in_block] = dt * x;         // du, in place of dy
  if (me.part == 1) m.u[row][me.in_block] = u * x + with_A;  // ddt, in place of u
  const float y = dt * u;
  float sums[8] = {
      y * dh.x, y * dh.y, y * dh.z, y * dh.w, dy * now.x, dy * now.y, dy * now.z, dy * now.w};
  dBC = sum_over_channels(sums);
  dh = times(dh, a);
}

// Sums over the warps. Lane 4 v + n of every warp holds value v of part n: dB_{4 n + v} for v < 4, else dC_{4 n + v - 4}.
__device__ __forceinline__ void store_dBC(
    const Kept& kept, const SelectiveScan& p, const Place& me, int64_t first_token
) {
  const int i = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, v = lane / 4, n = lane % 4;
  float sum = 0.f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += kept.dBC[w][i][lane];
  const int64_t token = first_token + i;
  const int column = (v < 4 ? 0 : kN) + 4 * n + v % 4;
  if (token < p.T) p.dBC[((me.b * p.T + token) * gridDim.y + blockIdx.y) * 2 * kN + column] = sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    backward_kernel(const __grid_constant__ SelectiveScan p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Tile& m = *reinterpret_cast<Tile*>(memory);
  Kept& kept = *reinterpret_cast<Kept*>(memory + sizeof(Tile));
  const Place me(p);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const float4 A = load_A(p, me);
  float4 dh = {0, 0, 0, 0}, dA = {0, 0, 0, 0};
  for (int64_t t = (p.T - 1) / kTokens * kTokens; t >= 0; t -= kTokens) {
    __syncthreads();
    load_tile<T, true>(m, p, me, t);
    __syncthreads();
    float4 h = me.any ? *mark(p, me, t / kTokens) : float4{0, 0, 0, 0};
    for (int i = 0; i < kTokens; ++i) {
      if (i % kSub == 0) kept.h[i / kSub][threadIdx.x] = h;
      const float dt = m.dt[i][me.in_block];
      h = step(decay(A, dt), h, dt * m.u[i][me.in_block], four(m.B[i], me.part));
    }
    for (int sub = kTokens / kSub - 1; sub >= 0; --sub) {
      float4 before[kSub];  // h_{t-1}
      before[0] = kept.h[sub][threadIdx.x];
#pragma unroll
      for (int i = 0; i + 1 < kSub; ++i) {
        const int row = sub * kSub + i;
        const float dt = m.dt[row][me.in_block], x = dt * m.u[row][me.in_block];
        before[i + 1] = step(decay(A, dt), before[i], x, four(m.B[row], me.part));
      }
#pragma unroll
      for (int i = kSub - 1; i >= 0; --i) {
        backward_token(dh, dA, kept.dBC[warp][i][lane], m, A, before[i], sub * kSub + i, me);
      }
      __syncthreads();
      store_dBC(kept, p, me, t + sub * kSub);
      __syncthreads();
    }
    for_tile(p, me, t, [&](int row, int column, int64_t at) {
      static_cast<T*>(p.du)[at] = narrow<T>(m.dy[row][column]);
      p.ddt[at] = m.u[row][column];
    });
  }
  if (me.any) *reinterpret_cast<float4*>(p.dA + (me.b * p.E + me.channel) * kN + 4 * me.part) = dA;
}

template <class T>
cudaError_t start(const SelectiveScan& p, bool back, cudaStream_t stream) {
  const auto kernel = back ? backward_kernel<T> : forward_kernel<T>;
  const size_t bytes = back ? sizeof(Tile) + sizeof(Kept) : sizeof(Tile);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  if (error != cudaSuccess) return error;
  const dim3 grid(unsigned(p.B), unsigned((p.E + kChannels - 1) / kChannels));
  kernel<<<grid, kThreads, bytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

cudaError_t selective_forward(const SelectiveScan& p, cudaStream_t stream) {
  return p.bf16 ? start<__nv_bfloat16>(p, false, stream) : start<float>(p, false, stream);
}

cudaError_t selective_backward(const SelectiveScan& p, cudaStream_t stream) {
  return p.bf16 ? start<__nv_bfloat16>(p, true, stream) : start<float>(p, true, stream);
}

}  // namespace horner::cuda
