// A block owns 128 channels of one batch row and walks over time, with 32 tokens at once in shared memory. Four lanes own two
// channels; each lane holds 4 of the 16 numbers h of both in registers. A warp owns 16 channels.
#include "nn/selective_scan.cuh"

#include "cuda/decay.cuh"
#include "cuda/launch.cuh"
#include "cuda/sm90.cuh"
#include "cuda/types.cuh"

namespace horner::cuda {
namespace {

constexpr int kTokens = kScanTokens, kChannels = kScanChannels, kN = kScanStates;
constexpr int kThreads = 2 * kChannels, kWarps = kThreads / 32;
constexpr int kSub = 4,
              kSubs = kTokens / kSub;    // tokens whose h are in registers at once, in the backward
constexpr int kColumns = kChannels / 4;  // threads that load a row, 4 channels each
static_assert(kThreads / kColumns == kScanSkips);

struct Tile {
  float u[kTokens][kChannels], dt[kTokens][kChannels], dy[kTokens][kChannels];
  float B[kTokens][kN], C[kTokens][kN];
};

// Shared memory of the backward: h before every 4th token but the first, and each warp's share of dB and dC for 4 tokens.
struct Kept {
  float4 h[kSubs - 1][2][kThreads];
  float dBC[kWarps][kSub][32];
};

struct Place {
  int b;
  int first, in_block,
      part;  // channel of the block; of this thread's two the first; which 4 of the 16
  __device__ explicit Place(const SelectiveScan& p)
      : b(int(blockIdx.x)),
        first(int(blockIdx.y) * kChannels),
        in_block(int(threadIdx.x) / 4 * 2),
        part(int(threadIdx.x) % 4) {}
  __device__ int channel() const { return first + in_block; }
  __device__ bool any(const SelectiveScan& p) const { return channel() < p.E; }
};

template <class T>
__device__ void load(float (&x)[4], const T* from) {
  struct alignas(sizeof(T) * 4) Four {
    T x[4];
  };
  const Four all = *reinterpret_cast<const Four*>(from);
#pragma unroll
  for (int c = 0; c < 4; ++c) x[c] = wide<float>(all.x[c]);
}
template <class T>
__device__ void store(T* to, const float (&x)[4]) {
  struct alignas(sizeof(T) * 4) Four {
    T x[4];
  } all;
#pragma unroll
  for (int c = 0; c < 4; ++c) all.x[c] = narrow<T>(x[c]);
  *reinterpret_cast<Four*>(to) = all;
}

// f(row, column, index in (B,T,E)) for the tokens t .. t+31 of the block, 4 channels at once. A thread always has the same
// columns. none(row, column) where there is no token or no channel.
template <class F, class None>
__device__ void for_tile(const SelectiveScan& p, const Place& me, int64_t t, F&& f, None&& none) {
  const int column = int(threadIdx.x) % kColumns * 4;
#pragma unroll 2
  for (int i = 0; i < kTokens * kColumns / kThreads; ++i) {
    const int row = int(threadIdx.x) / kColumns + i * (kThreads / kColumns);
    if (t + row < p.T && me.first + column < p.E)
      f(row, column, (int64_t(me.b) * p.T + t + row) * p.E + me.first + column);
    else
      none(row, column);
  }
}

__device__ float logistic(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }
// log(1 + e^x), with log(1 + e) = 2 artanh(w), w = e / (2 + e) <= 1/3: six terms of the series are exact to 2e-7, without a branch.
__device__ float softplus(float x) {
  const float e = __expf(-fabsf(x)), w = __fdividef(e, 2.f + e), s = w * w;
  float series = 1.f / 11;
#pragma unroll
  for (int n = 9; n >= 1; n -= 2) series = series * s + 1.f / float(n);
  return fmaxf(x, 0.f) + 2.f * w * series;
}
template <class T>
__device__ const T* gate_at(const SelectiveScan& p, const Place& me, int64_t token, int column) {
  return static_cast<const T*>(p.z) + (int64_t(me.b) * p.T + token) * p.z_row + me.first + column;
}

// 0 beyond the end: such a token changes nothing.
template <class T, bool kBack, bool kGated>
__device__ void load_tile(Tile& m, const SelectiveScan& p, const Place& me, int64_t t) {
  const auto some = [&](int row, int column, int64_t at) {
    float x[4];
    load(x, static_cast<const T*>(p.u) + at);
    store(&m.u[row][column], x);
    if (kGated) {
      load(x, static_cast<const T*>(p.step) + at);
#pragma unroll
      for (int c = 0; c < 4; ++c) x[c] = softplus(x[c]);
    } else {
      load(x, p.dt + at);
    }
    store(&m.dt[row][column], x);
    if (!kBack) return;
    if (!kGated) {
      load(x, p.dy + at);
    } else {  // dy = do silu(z)
      float z[4];
      load(x, static_cast<const T*>(p.d_o) + at);
      load(z, gate_at<T>(p, me, t + row, column));
#pragma unroll
      for (int c = 0; c < 4; ++c) x[c] *= z[c] * logistic(z[c]);
    }
    store(&m.dy[row][column], x);
  };
  const float zero[4] = {};
  for_tile(p, me, t, some, [&](int row, int column) {
    store(&m.u[row][column], zero);
    store(&m.dt[row][column], zero);
    store(&m.dy[row][column], zero);
  });
  for (int i = int(threadIdx.x); i < kTokens * kN / 4; i += kThreads) {
    const int row = i / (kN / 4), column = i % (kN / 4) * 4;
    const int64_t at = (int64_t(me.b) * p.T + t + row) * kN + column;
    float B[4] = {}, C[4] = {};
    if (t + row < p.T) {
      load(B, p.Bt + at);
      load(C, p.Ct + at);
    }
    store(&m.B[row][column], B);
    store(&m.C[row][column], C);
  }
}

__device__ float4 four(const float (&row)[kN], int part) {
  return *reinterpret_cast<const float4*>(row + 4 * part);
}
struct Both {  // numbers of a thread's two channels
  float x[2];
};
__device__ Both both(const float (&row)[kChannels], const Place& me) {
  const float2 x = *reinterpret_cast<const float2*>(row + me.in_block);
  return {{x.x, x.y}};
}

// e^{A dt}, from A log2 e
__device__ float4 decay(const float4& A, float dt) {
  return {exp2_fast(A.x * dt), exp2_fast(A.y * dt), exp2_fast(A.z * dt), exp2_fast(A.w * dt)};
}
__device__ float dot(const float4& a, const float4& b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
__device__ float4 times(const float4& a, const float4& b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
__device__ float4 plus(const float4& a, float x, const float4& b) {  // a + x b
  return {a.x + x * b.x, a.y + x * b.y, a.z + x * b.z, a.w + x * b.w};
}

// Sums n values over the lanes of which `lane` has the lowest bits. Each round gives half of the values to the partner and
// sums the other half; value i ends in the lanes whose number is i. n = 2 of 4 lanes: in those with i in the lowest bit.
template <int n, int kStep>
__device__ float exchange(float (&x)[n]) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int half = n / 2; half >= 1; half /= 2) {
    const bool upper = lane & (kStep * half);
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float give = upper ? x[i] : x[i + half], keep = upper ? x[i + half] : x[i];
      x[i] = keep + __shfl_xor_sync(~0u, give, kStep * half);
    }
  }
  return x[0];
}
// The sum of both channels' values over their four lanes: that of channel c in the lanes with lowest bit c.
__device__ float of_channels(float (&x)[2]) {
  const float sum = exchange<2, 1>(x);
  return sum + __shfl_xor_sync(~0u, sum, 2);
}

// Address of a thread's four numbers of channel c in (B, blocks, E, N).
__device__ float4* mark(const SelectiveScan& p, const Place& me, int64_t block, int c) {
  const int64_t blocks = (p.T + kTokens - 1) / kTokens;
  return reinterpret_cast<float4*>(
      p.marks + ((int64_t(me.b) * blocks + block) * p.E + me.channel() + c) * kN + 4 * me.part
  );
}
__device__ float4* states(float* of, const SelectiveScan& p, const Place& me, int c) {  // (B,E,N)
  return reinterpret_cast<float4*>(
      of + (int64_t(me.b) * p.E + me.channel() + c) * kN + 4 * me.part
  );
}

__device__ void load_A(float4 (&A)[2], const SelectiveScan& p, const Place& me) {
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    A[c] = {0, 0, 0, 0};
    if (me.any(p))
      A[c] = *reinterpret_cast<const float4*>(p.A + (me.channel() + c) * kN + 4 * me.part);
    A[c] = {A[c].x * kLog2e, A[c].y * kLog2e, A[c].z * kLog2e, A[c].w * kLog2e};
  }
}
__device__ void load_D(float (&D)[4], const SelectiveScan& p, const Place& me) {
  const int64_t column = me.first + threadIdx.x % kColumns * 4;
  if (p.D != nullptr && column < p.E) load(D, p.D + column);
}

// h goes one token on.
__device__ void step(
    float4 (&h)[2], const float4 (&A)[2], const Tile& m, int row, const Place& me
) {
  const Both dt = both(m.dt[row], me), u = both(m.u[row], me);
  const float4 B = four(m.B[row], me.part);
#pragma unroll
  for (int c = 0; c < 2; ++c) h[c] = plus(times(decay(A[c], dt.x[c]), h[c]), dt.x[c] * u.x[c], B);
}

template <class T, bool kGated>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ SelectiveScan p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Tile& m = *reinterpret_cast<Tile*>(memory);
  const Place me(p);
  float4 A[2], h[2] = {};
  float D[4] = {};
  load_A(A, p, me);
  load_D(D, p, me);
  for (int64_t t = 0; t < p.T; t += kTokens) {
    for (int c = 0; me.any(p) && c < 2; ++c) *mark(p, me, t / kTokens, c) = h[c];
    __syncthreads();
    load_tile<T, false, kGated>(m, p, me, t);
    __syncthreads();
#pragma unroll 4
    for (int i = 0; i < kTokens; ++i) {
      step(h, A, m, i, me);
      const float4 C = four(m.C[i], me.part);
      float y[2] = {dot(C, h[0]), dot(C, h[1])};
      const float sum = of_channels(y);
      if (me.part < 2) m.dy[i][me.in_block + me.part] = sum;
    }
    __syncthreads();
    const auto write = [&](int row, int column, int64_t at) {
      float y[4], u[4], z[4];
      load(y, &m.dy[row][column]);
      if (!kGated) return store(p.y + at, y);
      load(u, &m.u[row][column]);
      load(z, gate_at<T>(p, me, t + row, column));
#pragma unroll
      for (int c = 0; c < 4; ++c) y[c] = (y[c] + D[c] * u[c]) * z[c] * logistic(z[c]);
      store(static_cast<T*>(p.o) + at, y);
    };
    for_tile(p, me, t, write, [](int, int) {});
  }
  for (int c = 0; me.any(p) && c < 2; ++c) *states(p.last, p, me, c) = h[c];
}

// What a thread has of one token: e^{A dt}, and e^{A dt} h_{t-1}.
struct Decayed {
  float4 a[2], h[2];
};

// One token, backwards: du, ddt and y take the places of dy, dt and u. Gives this warp's share of dB and dC, and adds dA;
// dh goes from h_t to h_{t-1}.
template <bool kGated>
__device__ __forceinline__ void backward_token(
    float4 (&dh)[2],
    float4 (&dA)[2],
    float& dBC,
    Tile& m,
    const float4 (&A)[2],
    const Decayed& x,
    int row,
    const Place& me
) {
  const Both dt = both(m.dt[row], me), u = both(m.u[row], me), dy = both(m.dy[row], me);
  const float4 B = four(m.B[row], me.part), C = four(m.C[row], me.part);
  float sums[8] = {}, found[4], y[2];  // found: du of both channels, then ddt
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const float v = dt.x[c] * u.x[c];
    const float4 now = plus(x.h[c], v, B);  // h_t
    dh[c] = plus(dh[c], dy.x[c], C);
    const float with_B = dot(dh[c], B);
    const float4 w = times(dh[c], x.h[c]);
    dA[c] = plus(dA[c], dt.x[c], w);
    found[c] = dt.x[c] * with_B;
    found[2 + c] = u.x[c] * with_B + dot(w, A[c]) * (1.f / kLog2e);  // A here is A log2 e
    y[c] = dot(C, now);
    sums[0] += v * dh[c].x, sums[1] += v * dh[c].y;
    sums[2] += v * dh[c].z, sums[3] += v * dh[c].w;
    sums[4] += dy.x[c] * now.x, sums[5] += dy.x[c] * now.y;
    sums[6] += dy.x[c] * now.z, sums[7] += dy.x[c] * now.w;
    dh[c] = times(dh[c], x.a[c]);
  }
  const float own = exchange<4, 1>(found);
  (me.part < 2 ? m.dy : m.dt)[row][me.in_block + me.part % 2] = own;
  if (kGated) {
    const float sum = of_channels(y);
    if (me.part < 2) m.u[row][me.in_block + me.part] = sum;
  }
  dBC = exchange<8, 4>(sums);
}

// Sums over the warps. Lane 4 v + n of every warp holds value v of part n: dB_{4 n + v} for v < 4, else dC_{4 n + v - 4}.
__device__ __forceinline__ void store_dBC(
    const Kept& kept, const SelectiveScan& p, const Place& me, int64_t first_token
) {
  const int i = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, v = lane / 4, n = lane % 4;
  if (i >= kSub) return;
  float sum = 0.f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += kept.dBC[w][i][lane];
  const int64_t token = first_token + i;
  const int column = (v < 4 ? 0 : kN) + 4 * n + v % 4;
  if (token < p.T)
    p.dBC[((int64_t(me.b) * p.T + token) * gridDim.y + blockIdx.y) * 2 * kN + column] = sum;
}

// du, ddt; through softplus dstep = ddt sigmoid(step), and through the gate dz = do (y + D u) silu'(z), du += do silu(z) D, dD += do silu(z) u.
template <class T, bool kGated>
__device__ void write_gradients(const Tile& m, const SelectiveScan& p, const Place& me, int64_t t) {
  float D[4] = {}, dD[4] = {};
  load_D(D, p, me);
  const auto write = [&](int row, int column, int64_t at) {
    float du[4], x[4];
    load(x, &m.dt[row][column]);
    load(du, &m.dy[row][column]);
    if (!kGated) {
      store(p.ddt + at, x);
    } else {
      float u[4], z[4], d[4];
      load(z, static_cast<const T*>(p.step) + at);
#pragma unroll
      for (int c = 0; c < 4; ++c) x[c] *= logistic(z[c]);
      store(static_cast<T*>(p.dstep) + at, x);
      load(x, &m.u[row][column]);  // y
      load(u, static_cast<const T*>(p.u) + at);
      load(d, static_cast<const T*>(p.d_o) + at);
      load(z, gate_at<T>(p, me, t + row, column));
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float s = logistic(z[c]), through = d[c] * z[c] * s;
        x[c] = d[c] * (x[c] + D[c] * u[c]) * s * (1.f + z[c] * (1.f - s));
        du[c] += through * D[c];
        dD[c] += through * u[c];
      }
      store(static_cast<T*>(p.dz) + at, x);
    }
    store(static_cast<T*>(p.du) + at, du);
  };
  for_tile(p, me, t, write, [](int, int) {});
  const int column = me.first + int(threadIdx.x) % kColumns * 4;
  if (!kGated || column >= p.E) return;
  float* sum = p.dD + (int64_t(me.b) * kScanSkips + threadIdx.x / kColumns) * p.E + column;
  float before[4] = {};
  if (t + kTokens < p.T) load(before, sum);  // this thread's own sum, of later tokens
#pragma unroll
  for (int c = 0; c < 4; ++c) dD[c] += before[c];
  store(sum, dD);
}

// Blocks of the backward per multiprocessor, as far as shared memory allows.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kResident = 1;
#else
constexpr int kResident = 2;
#endif

template <class T, bool kGated>
__global__ void __launch_bounds__(kThreads, kResident)
    backward_kernel(const __grid_constant__ SelectiveScan p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Tile& m = *reinterpret_cast<Tile*>(memory);
  Kept& kept = *reinterpret_cast<Kept*>(memory + sizeof(Tile));
  const Place me(p);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const float4 nothing = {0, 0, 0, 0};
  float4 A[2], dh[2] = {}, dA[2] = {};
  load_A(A, p, me);
  for (int t = (int(p.T) - 1) / kTokens * kTokens; t >= 0; t -= kTokens) {
    __syncthreads();
    load_tile<T, true, kGated>(m, p, me, t);
    __syncthreads();
    float4 h[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) h[c] = me.any(p) ? *mark(p, me, t / kTokens, c) : nothing;
    for (int sub = 0; sub + 1 < kSubs; ++sub) {
#pragma unroll
      for (int i = 0; i < kSub; ++i) step(h, A, m, sub * kSub + i, me);
#pragma unroll
      for (int c = 0; c < 2; ++c) kept.h[sub][c][threadIdx.x] = h[c];
    }
    for (int sub = kSubs - 1; sub >= 0; --sub) {
      Decayed x[kSub];
      const auto first = [&](int c) {
        if (sub > 0) return kept.h[sub - 1][c][threadIdx.x];
        return me.any(p) ? *mark(p, me, t / kTokens, c) : nothing;
      };
#pragma unroll
      for (int c = 0; c < 2; ++c) h[c] = first(c);
#pragma unroll
      for (int i = 0; i < kSub; ++i) {
        const int row = sub * kSub + i;
        const Both dt = both(m.dt[row], me), u = both(m.u[row], me);
        const float4 B = four(m.B[row], me.part);
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          x[i].a[c] = decay(A[c], dt.x[c]);
          x[i].h[c] = times(x[i].a[c], h[c]);
          h[c] = plus(x[i].h[c], dt.x[c] * u.x[c], B);
        }
      }
#pragma unroll
      for (int i = kSub - 1; i >= 0; --i) {
        for (int c = 0; i == 0 && c < 2;
             ++c)  // read again: 8 registers less while the others are in use
          x[0].h[c] = times(x[0].a[c], first(c));
        float& dBC = kept.dBC[warp][i][lane];
        backward_token<kGated>(dh, dA, dBC, m, A, x[i], sub * kSub + i, me);
      }
      __syncthreads();
      store_dBC(kept, p, me, t + sub * kSub);
      __syncthreads();
    }
    write_gradients<T, kGated>(m, p, me, t);
  }
  for (int c = 0; me.any(p) && c < 2; ++c) *states(p.dA, p, me, c) = dA[c];
}

template <class T, bool kGated>
cudaError_t start(const SelectiveScan& p, bool back, cudaStream_t stream) {
  const auto kernel = back ? backward_kernel<T, kGated> : forward_kernel<T, kGated>;
  const size_t bytes = back ? sizeof(Tile) + sizeof(Kept) : sizeof(Tile);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  if (error != cudaSuccess) return error;
  const dim3 grid(unsigned(p.B), unsigned((p.E + kChannels - 1) / kChannels));
  kernel<<<grid, kThreads, bytes, stream>>>(p);
  return cudaGetLastError();
}

template <class T>
cudaError_t start(const SelectiveScan& p, bool back, cudaStream_t stream) {
  return p.z != nullptr ? start<T, true>(p, back, stream) : start<T, false>(p, back, stream);
}

}  // namespace

cudaError_t selective_forward(const SelectiveScan& p, cudaStream_t stream) {
  return p.bf16 ? start<__nv_bfloat16>(p, false, stream) : start<float>(p, false, stream);
}

cudaError_t selective_backward(const SelectiveScan& p, cudaStream_t stream) {
  return p.bf16 ? start<__nv_bfloat16>(p, true, stream) : start<float>(p, true, stream);
}

}  // namespace horner::cuda
