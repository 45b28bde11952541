// `linear`, one token: the state is read once and written once.
//
//   S = a S + k^T v        y = scale q S
#include "cuda/launch.cuh"
#include "cuda/types.cuh"
#include "ops/linear/linear.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 256, kLanes = 16, kColumns = 4 * kLanes, kParts = kThreads / kLanes,
              kMost = 256;  // rows

// x += a y
__device__ __forceinline__ void add_scaled(float4& x, float a, const float4& y) {
  x.x += a * y.x, x.y += a * y.y, x.z += a * y.z, x.w += a * y.w;
}

// y = scale q S: the sum over the threads of a column.
template <class T>
__device__ __forceinline__ void store_y(
    const float (&parts)[kParts][kColumns], int first_column, const Sweep& p, T* y
) {
  const int c = int(threadIdx.x), at = first_column + c;
  if (c >= kColumns || at >= p.N) return;
  float all = 0.f;
#pragma unroll
  for (int m = 0; m < kParts; ++m) all += parts[m][c];
  y[at] = narrow<T>(float(p.scale) * all);
}

// A block owns 64 columns of the state of one (b, key/value head). A thread owns four columns of every 16th row, in
// registers. While the state loads, k, q and the decay are prepared in shared memory. The query heads of a group read the
// state one after the other.
template <class T, int kRows>
__global__ void __launch_bounds__(kThreads, kRows > 8 ? 2 : 3)
    step_kernel(const __grid_constant__ Sweep p) {
  __shared__ __align__(16) float parts[kParts][kColumns];
  __shared__ float keys[kParts * kRows], queries[kParts * kRows], decays[kParts * kRows];
  const int lane = int(threadIdx.x % kLanes), part = int(threadIdx.x / kLanes);
  const int blocks = (p.N + kColumns - 1) / kColumns, group = p.k.group, heads = int(p.H) / group;
  const int state = int(blockIdx.x) / blocks, b = state / heads, head = state % heads;
  const int column = int(blockIdx.x) % blocks * kColumns + 4 * lane;
  const bool inside = column < p.N;
  const auto row = [&](const Rows& x, int h) {
    return static_cast<const T*>(x.data) + b * x.b + h * x.h;
  };
  const auto unit = [&](const StateView& s, int j) {  // four numbers of the state
    float* corner = static_cast<float*>(s.data) + b * s.b + head * s.h + column;
    return reinterpret_cast<float4*>(corner + (part + kParts * j) * s.r);
  };
  const int own = int(threadIdx.x);  // a row; all loads are issued before the first is used
  const auto load = [&](const T* x) { return own < p.R ? wide<float>(x[own]) : 0.f; };
  const float key_own = load(row(p.k, head)), query_own = load(row(p.q, head * group));
  const float* g = static_cast<const float*>(p.g.data) + b * p.g.b + head * p.g.h;
  const bool decay_own = p.decay != Decay::none && own < p.R;
  const float g_own = decay_own ? g[p.decay == Decay::rows ? own : 0] : 0.f;
  float4 value = {0.f, 0.f, 0.f, 0.f};
  if (inside) {
    const T* v = row(p.v, head) + column;
    value = {wide<float>(v[0]), wide<float>(v[1]), wide<float>(v[2]), wide<float>(v[3])};
  }
  float4 S[kRows];
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const bool in = p.first.data && inside && part + kParts * j < p.R;
    S[j] = in ? __ldcs(unit(p.first, j)) : float4{0.f, 0.f, 0.f, 0.f};
  }
  if (own < kParts * kRows)
    keys[own] = key_own, queries[own] = query_own, decays[own] = expf(g_own);
  for (int n = 0; n < group; ++n) {
    if (n > 0 && own < kParts * kRows) queries[own] = load(row(p.q, head * group + n));
    __syncthreads();
    float4 sum = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const int r = part + kParts * j;
      if (r >= p.R) break;
      if (n == 0) {  // S = a S + k^T v
        const float a = decays[r], key = keys[r];
        S[j].x = a * S[j].x + key * value.x, S[j].y = a * S[j].y + key * value.y;
        S[j].z = a * S[j].z + key * value.z, S[j].w = a * S[j].w + key * value.w;
        if (p.last.data && inside) __stcs(unit(p.last, j), S[j]);
      }
      add_scaled(sum, queries[r], S[j]);
    }
    *reinterpret_cast<float4*>(&parts[part][4 * lane]) = sum;
    __syncthreads();
    T* y = static_cast<T*>(p.y.data) + b * p.y.b + (head * group + n) * p.y.h;
    store_y(parts, column - 4 * lane, p, y);
  }
}

template <class T>
cudaError_t run(const Sweep& p, cudaStream_t stream) {
  const int64_t blocks = p.B * p.H / p.k.group * ((p.N + kColumns - 1) / kColumns);
  const auto kernel = p.R <= 4 * kParts   ? step_kernel<T, 4>
                      : p.R <= 8 * kParts ? step_kernel<T, 8>
                                          : step_kernel<T, 16>;
  return launch(kernel, blocks, kThreads, size_t(0), stream, p);
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
  switch (p.type) {
    case Type::f32: return run<float>(p, stream);
    case Type::f16: return run<__half>(p, stream);
    case Type::bf16: return run<__nv_bfloat16>(p, stream);
    case Type::f64: break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace horner::cuda
