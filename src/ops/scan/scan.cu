// `scan`: one pass over memory. Warps scan their own steps, and combine the results through shared memory.
#include "ops/scan/scan.cuh"

#include "cuda/decay.cuh"
#include "cuda/sm90.cuh"
#include "cuda/types.cuh"

namespace horner::cuda {
namespace {

constexpr int kChannels = 64, kWarps = 8, kSteps = 8;  // of a block; steps of a warp in a tile
constexpr int kTime = kWarps * kSteps;

template <class T>
struct Two {
  T x, y;
};

template <class T>
__device__ float2 load_two(const T* p) {
  const Two<T> both = *reinterpret_cast<const Two<T>*>(p);
  return {wide<float>(both.x), wide<float>(both.y)};
}
template <class T>
__device__ void store_two(T* p, float2 v) {
  *reinterpret_cast<Two<T>*>(p) = {narrow<T>(v.x), narrow<T>(v.y)};
}

// Loads kTime rows of 64 channels into shared memory; zeros outside [0, T) and beyond C. For h the rows start at t0 - 1; the
// reader replaces row -1 of the sequence by the initial state.
template <class T>
__device__ void load_rows(T* to, const T* from, int64_t t0, int64_t T_, int64_t C, int64_t c0) {
  constexpr int kUnit = 16 / sizeof(T), kUnits = kChannels / kUnit;
  for (int i = threadIdx.x; i < kTime * kUnits; i += kWarps * 32) {
    const int r = i / kUnits, c = i % kUnits * kUnit;
    const int64_t t = t0 + r;
    const bool valid = t >= 0 && t < T_ && c0 + c < C;
    copy_async(shared_address(to + r * kChannels + c), valid ? from + t * C + c0 + c : from, valid);
  }
}

template <class TG, class TV>
struct ForwardStage {
  TG g[kTime][kChannels];
  TV v[kTime][kChannels];
};
template <class TG, class TV>
struct BackwardStage {
  TG g[kTime][kChannels];
  TV dh[kTime][kChannels];
  TV h[kTime][kChannels];  // h_{t-1} in row t
};

// The effect of a warp's steps on an entering value: x -> e^g x + b, for two channels.
struct Affine {
  float2 g, b;
};

__device__ float2 exp_two(float2 g) { return {exp2_fast(g.x * kLog2e), exp2_fast(g.y * kLog2e)}; }
__device__ float2 multiply_add(float2 a, float2 x, float2 b) {
  return {a.x * x.x + b.x, a.y * x.y + b.y};
}

// The value that enters this warp: what enters the tile, passed through the warps before it (kReverse: after it). Log-decays
// are summed and exponentiated once per tile. Products of a would add up rounding errors when there is hardly any decay.
template <bool kReverse>
__device__ float2
entering(const Affine (&all)[kWarps][32], float2 x, int warp, int lane, float2& leaving) {
  float2 g = {0.f, 0.f}, b = {0.f, 0.f}, mine = x;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    const int w = kReverse ? kWarps - 1 - i : i;
    if (w == warp) mine = multiply_add(exp_two(g), x, b);
    const Affine f = all[w][lane];
    b = multiply_add(exp_two(f.g), b, f.b);
    g = {g.x + f.g.x, g.y + f.g.y};
  }
  leaving = multiply_add({expf(g.x), expf(g.y)}, x, b);
  return mine;
}

// A block owns 64 channels of one batch row and walks over time in tiles of kTime steps; the next tile loads meanwhile. A
// warp owns kSteps steps of the tile, a lane two channels.
template <class TG, class TV>
__global__ void __launch_bounds__(kWarps * 32) forward_kernel(const Scan p) {
  extern __shared__ __align__(16) unsigned char raw[];
  using Stage = ForwardStage<TG, TV>;
  Stage* stages = reinterpret_cast<Stage*>(raw);
  __shared__ Affine parts[2][kWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t blocks = (p.C + kChannels - 1) / kChannels;
  const int64_t b = blockIdx.x / blocks, c0 = blockIdx.x % blocks * kChannels, c = c0 + 2 * lane;
  const TG* g = static_cast<const TG*>(p.g) + b * p.T * p.C;
  const TV* v = static_cast<const TV*>(p.v) + b * p.T * p.C;
  TV* h = static_cast<TV*>(p.h) + b * p.T * p.C + c;
  const int tiles = int((p.T + kTime - 1) / kTime);
  const auto load = [&](int i) {
    load_rows(&stages[i % 2].g[0][0], g, int64_t(i) * kTime, p.T, p.C, c0);
    load_rows(&stages[i % 2].v[0][0], v, int64_t(i) * kTime, p.T, p.C, c0);
    copy_commit();
  };
  float2 state = {0.f, 0.f};
  if (p.first && c < p.C) state = load_two(p.first + b * p.C + c);
  load(0);
  for (int i = 0; i < tiles; ++i) {
    copy_wait<0>();
    __syncthreads();
    if (i + 1 < tiles) load(i + 1);
    const Stage& s = stages[i % 2];
    float2 a[kSteps], x[kSteps];
    Affine f{{0.f, 0.f}, {0.f, 0.f}};
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
      const int r = warp * kSteps + n;
      const float2 gn = load_two(&s.g[r][2 * lane]);
      x[n] = load_two(&s.v[r][2 * lane]);
      a[n] = exp_two(gn);
      f = {{f.g.x + gn.x, f.g.y + gn.y}, multiply_add(a[n], f.b, x[n])};
    }
    parts[i % 2][warp][lane] = f;
    __syncthreads();
    float2 leaving, now = entering<false>(parts[i % 2], state, warp, lane, leaving);
    state = leaving;
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
      now = multiply_add(a[n], now, x[n]);  // h_t = a_t h_{t-1} + v_t
      const int64_t t = int64_t(i) * kTime + warp * kSteps + n;
      if (t < p.T && c < p.C) store_two(h + t * p.C, now);
      if (t == p.T - 1 && p.last && c < p.C) store_two(p.last + b * p.C + c, now);
    }
  }
}

template <class TG, class TV>
__global__ void __launch_bounds__(kWarps * 32) backward_kernel(const Scan p) {
  extern __shared__ __align__(16) unsigned char raw[];
  using Stage = BackwardStage<TG, TV>;
  Stage* stages = reinterpret_cast<Stage*>(raw);
  __shared__ Affine parts[2][kWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t blocks = (p.C + kChannels - 1) / kChannels;
  const int64_t b = blockIdx.x / blocks, c0 = blockIdx.x % blocks * kChannels, c = c0 + 2 * lane;
  const TG* g = static_cast<const TG*>(p.g) + b * p.T * p.C;
  const TV* h = static_cast<const TV*>(p.h) + b * p.T * p.C;
  const TV* dh = static_cast<const TV*>(p.dh) + b * p.T * p.C;
  TG* dg = static_cast<TG*>(p.dg) + b * p.T * p.C + c;
  TV* dv = static_cast<TV*>(p.dv) + b * p.T * p.C + c;
  const int tiles = int((p.T + kTime - 1) / kTime);
  const auto load = [&](int i) {  // tile i from the end
    const int64_t t = int64_t(tiles - 1 - i) * kTime;
    load_rows(&stages[i % 2].g[0][0], g, t, p.T, p.C, c0);
    load_rows(&stages[i % 2].dh[0][0], dh, t, p.T, p.C, c0);
    load_rows(&stages[i % 2].h[0][0], h, t - 1, p.T, p.C, c0);
    copy_commit();
  };
  float2 w = {0.f, 0.f}, first = {0.f, 0.f};
  if (p.dlast && c < p.C) w = load_two(p.dlast + b * p.C + c);
  if (p.first && c < p.C) first = load_two(p.first + b * p.C + c);
  load(0);
  for (int i = 0; i < tiles; ++i) {
    copy_wait<0>();
    __syncthreads();
    if (i + 1 < tiles) load(i + 1);
    const Stage& s = stages[i % 2];
    const int64_t t0 = int64_t(tiles - 1 - i) * kTime;
    float2 a[kSteps], x[kSteps];
    Affine f{{0.f, 0.f}, {0.f, 0.f}};
#pragma unroll
    for (int n = kSteps - 1; n >= 0; --n) {
      const int r = warp * kSteps + n;
      const float2 gn = load_two(&s.g[r][2 * lane]);  // after the end g = 0, dh = 0: w is unchanged
      x[n] = load_two(&s.dh[r][2 * lane]);
      a[n] = exp_two(gn);
      f = {{f.g.x + gn.x, f.g.y + gn.y}, {a[n].x * (f.b.x + x[n].x), a[n].y * (f.b.y + x[n].y)}};
    }
    parts[i % 2][warp][lane] = f;
    __syncthreads();
    float2 leaving, now = entering<true>(parts[i % 2], w, warp, lane, leaving);
    w = leaving;
#pragma unroll
    for (int n = kSteps - 1; n >= 0; --n) {
      const int64_t t = t0 + warp * kSteps + n;
      const float2 before = t == 0 ? first : load_two(&s.h[warp * kSteps + n][2 * lane]);
      const float2 u = {x[n].x + now.x, x[n].y + now.y};  // dv_t = dh_t + w_{t+1}
      now = {a[n].x * u.x, a[n].y * u.y};                 // w_t = a_t dv_t
      if (t < p.T && c < p.C) {
        store_two(dv + t * p.C, u);
        store_two(dg + t * p.C, {now.x * before.x, now.y * before.y});  // dg_t = w_t h_{t-1}
      }
    }
  }
  if (p.dfirst && warp == 0 && c < p.C) store_two(p.dfirst + b * p.C + c, w);
}

template <template <class, class> class Stage, class TG, class TV, class Kernel>
cudaError_t launch(Kernel* kernel, const Scan& p, cudaStream_t stream) {
  const int bytes = int(2 * sizeof(Stage<TG, TV>));
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  const unsigned blocks = unsigned(p.B * ((p.C + kChannels - 1) / kChannels));
  kernel<<<blocks, kWarps * 32, bytes, stream>>>(p);
  return cudaGetLastError();
}

template <class TG, class TV>
cudaError_t launch(const Scan& p, bool backward, cudaStream_t stream) {
  return backward ? launch<BackwardStage, TG, TV>(backward_kernel<TG, TV>, p, stream)
                  : launch<ForwardStage, TG, TV>(forward_kernel<TG, TV>, p, stream);
}

cudaError_t launch(const Scan& p, bool backward, cudaStream_t stream) {
  if (p.type == Type::f32) return launch<float, float>(p, backward, stream);
  if (p.type == Type::bf16) {
    return p.gate == Type::f32 ? launch<float, __nv_bfloat16>(p, backward, stream)
                               : launch<__nv_bfloat16, __nv_bfloat16>(p, backward, stream);
  }
  return p.gate == Type::f32 ? launch<float, __half>(p, backward, stream)
                             : launch<__half, __half>(p, backward, stream);
}

}  // namespace

cudaError_t scan_forward(const Scan& p, cudaStream_t stream) { return launch(p, false, stream); }
cudaError_t scan_backward(const Scan& p, cudaStream_t stream) { return launch(p, true, stream); }

}  // namespace horner::cuda
