// One token against a state that stays as it is (read_state.cuh). Bound by the bytes of the state, in.
#include "ops/read_state.cuh"

#include "cuda/flat.cuh"
#include "cuda/launch.cuh"
#include "cuda/sm90.cuh"
#include "cuda/types.cuh"

namespace horner::cuda {
namespace {

// Shared memory: a ring of units of the state, f(q), the keys and values that wait, and what is left of each, where there is a decay.
struct Layout {
  int gates;  // decays of a token
  int features, left, kept, keys, values, bytes;

  Layout(const ReadState& p, int width, int ring)
      : gates(
            p.gate == Gate::none   ? 0
            : p.gate == Gate::head ? 1
                                   : p.K
        ) {
    features = ring;
    left = features + 4 * p.features;
    kept = left + 4 * p.n * gates;
    keys = kept + 4 * gates;
    values = keys + width * p.n * p.K;
    bytes = values + width * p.n * p.V;
  }
};

template <class T>
struct Waiting {
  float *features, *left, *kept;  // (F), (n,gates), (gates)
  T *keys, *values;               // (n,K), (n,V)
};

// Token n - 1 into the ring, and all of them into shared memory.
template <class T, int kThreads>
__device__ void gather(const ReadState& p, const Layout& at, const Waiting<T>& m, int b, int head) {
  const auto rows =
      [&](void* ring, const void* token, int64_t stride_b, int64_t stride_h, int width, T* to) {
        T* const all = static_cast<T*>(ring) + (int64_t(b) * p.fold * p.G + head) * width;
        const T* own = static_cast<const T*>(token) + b * stride_b + head * stride_h;
#pragma unroll 1
        for (int e = int(threadIdx.x); e < p.n * width; e += kThreads) {
          const int j = e / width, i = e % width;
          T* place = all + int64_t(j) * p.G * width + i;
          to[e] = j + 1 < p.n ? *place : own[i];
          if (j + 1 == p.n) *place = own[i];
        }
      };
  rows(p.ring_k, p.k, p.k_b, p.k_h, p.K, m.keys);
  rows(p.ring_v, p.v, p.v_b, p.v_h, p.V, m.values);
#pragma unroll 1
  for (int e = int(threadIdx.x); e < p.n * at.gates; e += kThreads) {
    const int j = e / at.gates, i = e % at.gates;
    const int64_t width = int64_t(p.G) * at.gates;
    float* place = p.ring_g + (int64_t(b) * p.fold + j) * width + head * at.gates + i;
    const float own = p.g[b * width + head * at.gates + i];
    m.left[e] = j + 1 < p.n ? *place : own;
    if (j + 1 == p.n) *place = own;
  }
}

// g_j -> a_j, and A.
template <class T>
__device__ void decay(const ReadState& p, const Layout& at, const Waiting<T>& m) {
  const int i = int(threadIdx.x);
  if (i >= at.gates) return;
  float sum = 0.f;
  for (int j = p.n - 1; j >= 0; --j) {
    float& place = m.left[j * at.gates + i];
    const float g = place;
    place = expf(sum);
    sum += g;
  }
  m.kept[i] = expf(sum);
}

// a_j w(q, k_j), a warp for one after the other.
template <class T, bool kSeries, int kThreads>
__device__ void weigh(
    const ReadState& p, const Layout& at, const Waiting<T>& m, const float* query, float* weights
) {
  const int lane = int(threadIdx.x) % 32;
  for (int j = int(threadIdx.x) / 32; j < p.n; j += kThreads / 32) {
    float x = 0.f;
    for (int i = lane; i < p.K; i += 32) {
      const float a = p.gate == Gate::key ? m.left[j * p.K + i] : 1.f;
      x += query[i] * wide<float>(m.keys[j * p.K + i]) * a;
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(~0u, x, d);
    const float w = kSeries ? p.c0 + x * (p.c1 + x * p.c2) : p.c1 * x;
    if (lane == 0) weights[j] = p.gate == Gate::head ? w * m.left[j] : w;
  }
}

// f(q), and A where it differs by row.
template <class T, bool kSeries, int kThreads>
__device__ void make_features(const ReadState& p, const Waiting<T>& m, const float* query) {
  const int t = int(threadIdx.x);
  if constexpr (!kSeries) {
    if (t < p.K) m.features[t] = p.c1 * query[t] * (p.gate == Gate::key ? m.kept[t] : 1.f);
    return;
  }
  if (t == 0) m.features[0] = p.c0;
  if (p.order > 0 && t < p.K) m.features[1 + t] = p.c1 * query[t];
#pragma unroll 1
  for (int e = t; p.order > 1 && e < p.K * p.K; e += kThreads) {
    const int i = e / p.K, j = e % p.K;
    if (i > j) continue;
    m.features[1 + p.K + i * p.K - i * (i - 1) / 2 + j - i] =
        (i == j ? p.c2 : 2.f * p.c2) * query[i] * query[j];
  }
}

// A block owns one head of k and v and the query heads that read it. Each thread streams its units of the state through
// kRing places of shared memory, the first of them on their way while the features are made.
template <class T, bool kSeries, int kThreads, int kRing, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) read_kernel(
    const __grid_constant__ ReadState p,
    const __grid_constant__ Flat flat,
    const __grid_constant__ Layout at
) {
  HORNER_DYNAMIC_MEMORY(memory);
  __shared__ float sums[4 * kThreads], ends[6], query[kMostKeysRead], weights[kMostFold];
  const Waiting<T> m{
      reinterpret_cast<float*>(memory + at.features),
      reinterpret_cast<float*>(memory + at.left),
      reinterpret_cast<float*>(memory + at.kept),
      reinterpret_cast<T*>(memory + at.keys),
      reinterpret_cast<T*>(memory + at.values)};
  float4* const places = reinterpret_cast<float4*>(memory) + threadIdx.x;  // every kThreads-th
  const int t = int(threadIdx.x), group = p.H / p.G;
  const int b = int(blockIdx.x) / p.G, head = int(blockIdx.x) % p.G;
  const int64_t offset = int64_t(blockIdx.x) * flat.count;
  const int lead = min(int(-offset & 3), flat.count), units = (flat.count - lead) / 4;
  const int mine = p.S && t < flat.stride ? (units - t + flat.stride - 1) / flat.stride : 0;
  const float* const S = p.S + offset + lead + 4 * t;  // its first unit
  const auto fetch = [&](int i) {
    if (i < mine)
      copy_async(shared_address(places + i % kRing * kThreads), S + 4 * i * flat.stride, true);
    copy_commit();
  };
#pragma unroll 1
  for (int i = 0; i < kRing; ++i) fetch(i);
  gather<T, kThreads>(p, at, m, b, head);
  __syncthreads();
  decay(p, at, m);
  int row[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) row[i] = (lead + 4 * t + i) / flat.C;
  const auto loose = [&](int i) { return i < lead ? i : i + 4 * units; };
  for (int n = 0; n < group; ++n) {
    const int64_t h = head * group + n;
#pragma unroll 1
    for (int i = n > 0 ? 0 : kRing; i < kRing; ++i) fetch(i);
#pragma unroll 1
    for (int i = t; i < p.K; i += kThreads)
      query[i] = wide<float>(static_cast<const T*>(p.q)[b * p.q_b + h * p.q_h + i]);
    __syncthreads();
    weigh<T, kSeries, kThreads>(p, at, m, query, weights);
    make_features<T, kSeries, kThreads>(p, m, query);
    __syncthreads();
    float y[4] = {};
    const float* feature = m.features;
#pragma unroll 1
    for (int i = 0; i < mine; ++i, feature += flat.rows) {
      copy_wait<kRing - 1>();
      const float4 unit = places[i % kRing * kThreads];
      y[0] += feature[row[0]] * unit.x;  // f(q) S
      y[1] += feature[row[1]] * unit.y;
      y[2] += feature[row[2]] * unit.z;
      y[3] += feature[row[3]] * unit.w;
      fetch(i + kRing);
    }
    if (t < flat.count - 4 * units)
      ends[t] = p.S ? m.features[loose(t) / flat.C] * p.S[offset + loose(t)] : 0.f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // column c: of all shares c, c + C, ..
      const int share = lead + 4 * t + i, all = 4 * flat.stride;
      if (t < flat.stride) sums[share < all ? share : share - all] = y[i];
    }
    __syncthreads();
#pragma unroll 1
    for (int c = t; c < flat.C; c += kThreads) {
      float sum = 0.f;
      for (int r = 0; r < flat.rows; ++r) sum += sums[r * flat.C + c];
      for (int i = 0; i < flat.count - 4 * units; ++i)
        sum += loose(i) % flat.C == c ? ends[i] : 0.f;
      if (p.gate == Gate::head) sum *= m.kept[0];
      for (int j = 0; j < p.n; ++j)
        sum += weights[j] * (c < p.V ? wide<float>(m.values[j * p.V + c]) : 1.f);
      sums[c] = sum;  // the shares of column c are read by this thread alone
    }
    __syncthreads();
    float den = p.normalise ? sums[p.V] : 1.f;
    if (p.clamps) den = fmaxf(den, p.eps);
    T* o = static_cast<T*>(p.o) + (int64_t(b) * p.H + h) * p.V;
    for (int c = t; c < p.V; c += kThreads) o[c] = narrow<T>(sums[c] / den);
  }
}

template <class T, bool kSeries, int kThreads, int kRing, int kBlocks>
cudaError_t run(const ReadState& p, cudaStream_t stream) {
  const Layout layout(p, int(sizeof(T)), 16 * kRing * kThreads);
  const Flat flat(p.features, p.V + (p.normalise ? 1 : 0), kThreads);
  return launch(
      read_kernel<T, kSeries, kThreads, kRing, kBlocks>,
      p.B * p.G,
      kThreads,
      size_t(layout.bytes),
      stream,
      p,
      flat,
      layout
  );
}

template <class T, bool kSeries>
cudaError_t choose(const ReadState& p, cudaStream_t stream) {
  const int64_t count = int64_t(p.features) * p.V;  // large states: few blocks fill a GPU
  return count > 65536 ? run<T, kSeries, 1024, 4, 1>(p, stream)
                       : run<T, kSeries, 288, 8, 4>(p, stream);
}

}  // namespace

cudaError_t read_state(const ReadState& p, cudaStream_t stream) {
  if (p.bf16)
    return p.series ? choose<__nv_bfloat16, true>(p, stream)
                    : choose<__nv_bfloat16, false>(p, stream);
  return p.series ? choose<float, true>(p, stream) : choose<float, false>(p, stream);
}

}  // namespace horner::cuda
