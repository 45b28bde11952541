// `linear`, one token: the state is read once and written once.
//
//   S = a S + k^T v        y = scale q S
#include "cuda/types.cuh"
#include "ops/linear/linear.cuh"

namespace horner::cuda {
namespace {

constexpr int kWarps = 8, kColumns = 128, kMost = 256,
              kAtOnce = 8;  // rows of the state that a thread has in flight

// A block owns 128 columns of the state of one (b, head of k and v), a warp every eighth row of them, a lane four
// columns. The state is on its way while k, q and the decay are made ready in shared memory. The query heads of a group
// read it one after the other.
template <class T>
__global__ void __launch_bounds__(32 * kWarps)
    step_kernel(const __grid_constant__ Sweep p, int group) {
  __shared__ float4 parts[kWarps][kColumns / 4];
  __shared__ float keys[kMost], queries[kMost], decays[kMost];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const unsigned heads = unsigned(p.H) / unsigned(group);
  const int64_t b = blockIdx.x / heads, shared_head = blockIdx.x % heads;
  const int column = int(blockIdx.y) * kColumns + 4 * lane;
  const bool inside = column < p.N;
  const auto row = [&](const Rows& x, int64_t own) {  // own: the query head, where x has them all
    return static_cast<const T*>(x.data) + b * x.b + (x.group == 1 ? own : shared_head) * x.h;
  };
  const int64_t first_head = shared_head * group;
  const float* from = nullptr;
  float* to = nullptr;
  if (p.first.data)
    from = static_cast<const float*>(p.first.data) + b * p.first.b + shared_head * p.first.h;
  if (p.last.data) to = static_cast<float*>(p.last.data) + b * p.last.b + shared_head * p.last.h;
  const auto load = [&](float4(&S)[kAtOnce], int top) {
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int r = top + kWarps * j;
      S[j] = {0.f, 0.f, 0.f, 0.f};
      if (from && inside && r < p.R)
        S[j] = __ldcs(reinterpret_cast<const float4*>(from + r * p.first.r + column));
    }
  };
  float4 S[kAtOnce], value = {0.f, 0.f, 0.f, 0.f};
  load(S, warp);
  const T *k = row(p.k, first_head), *v = row(p.v, first_head);
  const float* g = nullptr;
  if (p.decay != Decay::none) {
    g = static_cast<const float*>(p.g.data) + b * p.g.b +
        (p.g.group == 1 ? first_head : shared_head) * p.g.h;
  }
  for (int r = int(threadIdx.x); r < p.R; r += 32 * kWarps) {
    keys[r] = wide<float>(k[r]);
    decays[r] = g == nullptr ? 1.f : expf(g[p.decay == Decay::rows ? r : 0]);
  }
  if (inside)
    value = {
        wide<float>(v[column]),
        wide<float>(v[column + 1]),
        wide<float>(v[column + 2]),
        wide<float>(v[column + 3])};
  for (int n = 0; n < group; ++n) {
    const T* q = row(p.q, first_head + n);
    for (int r = int(threadIdx.x); r < p.R; r += 32 * kWarps) queries[r] = wide<float>(q[r]);
    __syncthreads();
    float4 sum = {0.f, 0.f, 0.f, 0.f};
    for (int top = warp; top < p.R; top += kWarps * kAtOnce) {
      if (n > 0 || top > warp) load(S, top);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int r = top + kWarps * j;
        if (r >= p.R) break;
        const float a = decays[r], key = keys[r], query = queries[r];
        const float4 s = {
            a * S[j].x + key * value.x,
            a * S[j].y + key * value.y,
            a * S[j].z + key * value.z,
            a * S[j].w + key * value.w};
        if (n == 0 && to && inside)
          __stcs(reinterpret_cast<float4*>(to + r * p.last.r + column), s);
        sum.x += query * s.x, sum.y += query * s.y, sum.z += query * s.z, sum.w += query * s.w;
      }
    }
    parts[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && inside) {
      for (int w = 1; w < kWarps; ++w) {
        const float4 x = parts[w][lane];
        sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
      }
      const float scale = float(p.scale);
      T* y = static_cast<T*>(p.y.data) + b * p.y.b + (first_head + n) * p.y.h + column;
      y[0] = narrow<T>(scale * sum.x), y[1] = narrow<T>(scale * sum.y);
      y[2] = narrow<T>(scale * sum.z), y[3] = narrow<T>(scale * sum.w);
    }
    if (n + 1 < group) __syncthreads();
  }
}

template <class T>
cudaError_t launch(const Sweep& p, int group, cudaStream_t stream) {
  const dim3 grid(unsigned(p.B * p.H / group), unsigned((p.N + kColumns - 1) / kColumns));
  step_kernel<T><<<grid, 32 * kWarps, 0, stream>>>(p, group);
  return cudaGetLastError();
}

}  // namespace

bool steps(const Sweep& p) {
  const auto rows_of_four = [&](const StateView& s) {
    return !s.data || (s.n == 1 && s.r % 4 == 0 && s.h % 4 == 0 && s.b % 4 == 0 &&
                       reinterpret_cast<uintptr_t>(s.data) % 16 == 0);
  };
  return p.T == 1 && !p.reverse && p.type != Type::f64 && p.R <= kMost && p.N % 4 == 0 &&
         !p.flow.data && p.decay != Decay::columns && rows_of_four(p.first) && rows_of_four(p.last);
}

cudaError_t step(const Sweep& p, cudaStream_t stream) {
  const int group = p.k.group;
  switch (p.type) {
    case Type::f32: return launch<float>(p, group, stream);
    case Type::f16: return launch<__half>(p, group, stream);
    case Type::bf16: return launch<__nv_bfloat16>(p, group, stream);
    case Type::f64: break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace horner::cuda
