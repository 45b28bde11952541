// One token reads a state that stays as it is (lazy.cuh). The time is that of reading the state once.
#include "cuda/flat.cuh"
#include "cuda/launch.cuh"
#include "ops/lazy/tokens.cuh"

namespace horner::cuda {
namespace {

template <int kBarrier, int kThreads>
__device__ void meet() {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
}

__device__ float2 wide_pair(const float* x) { return *reinterpret_cast<const float2*>(x); }
__device__ float2 wide_pair(const __nv_bfloat16* x) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(x));
}
// 16 bytes.
template <class T>
struct Unit {
  static constexpr int kSize = 16 / int(sizeof(T));
  float x[kSize];
  __device__ explicit Unit(const T* from) {
    const uint4 raw = *reinterpret_cast<const uint4*>(from);
    const T* each = reinterpret_cast<const T*>(&raw);
#pragma unroll
    for (int i = 0; i < kSize; ++i) x[i] = wide<float>(each[i]);
  }
};

// kTokens threads compute sum_j a_j w(q, k_j) v~_j into `sums`. kTokens / kMostFold threads share a token.
template <class T, bool kSeries, int kTokens>
__device__ void read_tokens(
    const LazyRead& p,
    const WaitingRows<T>& keys,
    const WaitingRows<T>& values,
    const T* q,
    int t,
    const float* left,
    float* weights,
    float* sums
) {
  constexpr int kLanes = kTokens / kMostFold, kUnit = Unit<T>::kSize;
  const int j = t / kLanes, gates = p.gates();
  float x = 0.f;
  if (j < p.n) {
    const T* const k = keys[j];
#pragma unroll 2
    for (int i = t % kLanes * kUnit; i < p.K; i += kLanes * kUnit) {
      const Unit<T> query(q + i), key(k + i);
#pragma unroll
      for (int e = 0; e < kUnit; ++e)
        x += query.x[e] * key.x[e] * (gates > 1 ? left[j * gates + i + e] : 1.f);
    }
  }
#pragma unroll
  for (int d = kLanes / 2; d > 0; d /= 2) x += __shfl_xor_sync(~0u, x, d);
  const float w = kSeries ? p.c0 + x * (p.c1 + x * p.c2) : p.c1 * x;
  if (t % kLanes == 0) weights[j] = j >= p.n ? 0.f : gates == 1 ? w * left[j] : w;
  meet<2, kTokens>();
  for (int c = 2 * t; c < p.V; c += 2 * kTokens) {
    const float2 own = wide_pair(values.own + c);
    float2 sum = {weights[p.n - 1] * own.x, weights[p.n - 1] * own.y};
#pragma unroll 8
    for (int i = 0; i + 1 < p.n; ++i) {
      const float2 v = wide_pair(values.ring + i * values.stride + c);
      sum.x += weights[i] * v.x;
      sum.y += weights[i] * v.y;
    }
    sums[c] = sum.x;
    sums[c + 1] = sum.y;
  }
  if (t > 0) return;
  float sum = 0.f;
  for (int i = 0; i < p.n; ++i) sum += weights[i];
  sums[p.V] = sum;
}

// f(q) S of this thread's columns, from the units that stream through shared memory.
template <class Stream>
__device__ __forceinline__ void multiply_stream(
    float (&y)[4], const float* feature, const int (&row)[4], const Stream& stream, const Flat& flat
) {
#pragma unroll 1
  for (int i = 0; i < stream.mine; ++i, feature += flat.rows) {
    const float4 unit = stream.take(i);
    y[0] += feature[row[0]] * unit.x;
    y[1] += feature[row[1]] * unit.y;
    y[2] += feature[row[2]] * unit.z;
    y[3] += feature[row[3]] * unit.w;
  }
}

// Column c is the sum of shares c, c + C, ..
__device__ __forceinline__ void store_shares(
    float* shares, const float (&y)[4], int first, int all
) {
#pragma unroll
  for (int i = 0; i < 4; ++i) shares[first + i < all ? first + i : first + i - all] = y[i];
}

// Column t of o: the shares of the threads, the numbers outside the units, the tokens that wait; divided by the normaliser.
template <class T>
__device__ __forceinline__ void finish(
    const LazyRead& p,
    const Flat& flat,
    const FlatPart& part,
    const float* shares,
    const float* ends,
    const float* sums,
    const float* kept,
    float& den,
    int t,
    int head
) {
  float sum = 0.f;
  if (t < flat.C) {
#pragma unroll 4
    for (int r = 0; r < flat.rows; ++r) sum += shares[r * flat.C + t];
    if (t < part.lead) sum += ends[t];
    if (t >= flat.C - part.tail) sum += ends[part.lead + t - (flat.C - part.tail)];
    if (p.gate == LazyGate::head) sum *= kept[0];
    sum += sums[t];
  }
  if (p.normalise) {
    if (t == p.V) den = p.clamps ? fmaxf(sum, p.eps) : sum;
    __syncthreads();
    sum /= den;
  }
  if (t < p.V) static_cast<T*>(p.o)[int64_t(head) * p.V + t] = narrow<T>(sum);
}

// A block owns a query head. kTokens threads read the tokens. The other kStream threads stream the state through shared
// memory; its first units load while f(q) is computed.
template <class T, bool kSeries, int kStream, int kTokens, int kRing, int kBlocks>
__global__ void __launch_bounds__(kStream + kTokens, kBlocks)
    read_kernel(const __grid_constant__ LazyRead p, const __grid_constant__ Flat flat) {
  HORNER_DYNAMIC_MEMORY(memory);
  __shared__ float shares[4 * kStream], sums[kMostColumns + 1], ends[6], weights[kMostFold], den;
  float* const features = reinterpret_cast<float*>(memory) + 4 * kRing * kStream;  // (F): f(q)
  float* const kept = features + p.features;                                       // (gates): A
  float* const left = kept + p.gates();                                            // (n,gates): a_j
  const int t = int(threadIdx.x), head = int(blockIdx.x), kv = head / (p.H / p.G);
  const T* const q = static_cast<const T*>(p.q) + head / p.H * p.q_b + head % p.H * p.q_h;
  const FlatPart part(flat, kv, t);
  wait_for_earlier_kernels();
  if (t >= kStream) {
    const int own = t - kStream, b = kv / p.G, g_head = kv % p.G;
    const WaitingRows<T> keys(p.ring_k, p, kv, p.K, p.k, b * p.k_b + g_head * p.k_h);
    const WaitingRows<T> values(p.ring_v, p, kv, p.V, p.v, b * p.v_b + g_head * p.v_h);
    const WaitingRows<float> decay_rows(p.ring_g, p, kv, p.gates(), p.g, int64_t(kv) * p.gates());
    decays<kTokens>(p, decay_rows, own, left, kept);
    if (p.gate == LazyGate::head) meet<2, kTokens>();
    if (p.gate == LazyGate::key) __syncthreads();
    read_tokens<T, kSeries, kTokens>(p, keys, values, q, own, left, weights, sums);
    if (head % (p.H / p.G) == 0) {
      keys.template keep<kTokens>(own, p.K);
      values.template keep<kTokens>(own, p.V);
      decay_rows.template keep<kTokens>(own, p.gates());
    }
  } else {
    const FlatStream<kStream, kRing> stream{
        reinterpret_cast<float4*>(memory) + t,
        p.S + part.offset + part.lead + 4 * t,
        p.S ? part.mine : 0,
        flat.stride};
    stream.start();
    if (p.gate == LazyGate::key) __syncthreads();
    for_rows<kSeries, kStream>(p, t, [&](int row, int order, int i, int j) {
      const float c = order == 0 ? p.c0 : order == 1 ? p.c1 : i == j ? p.c2 : 2.f * p.c2;
      const float A = p.gate == LazyGate::key ? kept[row] : 1.f;
      features[row] = c * monomial(q, order, i, j) * A;
    });
    int row[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) row[i] = flat.row(part.lead + 4 * t + i);
    meet<1, kStream>();
    float y[4] = {};
    multiply_stream(y, features, row, stream, flat);
    if (t < part.lead + part.tail) {
      const int i = t < part.lead ? t : t + 4 * part.units;
      ends[t] = p.S ? features[flat.row(i)] * p.S[part.offset + i] : 0.f;
    }
    if (t < flat.stride) store_shares(shares, y, part.lead + 4 * t, 4 * flat.stride);
  }
  __syncthreads();
  finish<T>(p, flat, part, shares, ends, sums, kept, den, t, head);
}

template <class T, bool kSeries, int kStream, int kTokens, int kRing, int kBlocks>
cudaError_t run(const LazyRead& p, cudaStream_t stream) {
  const int bytes = 16 * kRing * kStream + 4 * (p.features + (p.n + 1) * p.gates());
  const Flat flat(p.features, p.V + (p.normalise ? 1 : 0), kStream);
  const auto kernel = read_kernel<T, kSeries, kStream, kTokens, kRing, kBlocks>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  const int threads = kStream + kTokens;
  return launch_early(kernel, p.B * p.H, threads, bytes, stream, p.overlaps, p, flat);
}

// Few threads per block, as few as the columns of a row allow, so that most blocks run at once. Large states have few
// blocks and get more threads.
template <class T, bool kSeries>
cudaError_t choose(const LazyRead& p, cudaStream_t stream) {
  const int C = p.V + (p.normalise ? 1 : 0), least = Flat::least(C);
  if (int64_t(p.features) * C > 65536) return run<T, kSeries, 544, 64, 8, 1>(p, stream);
  if (least <= 64 && C <= 128) return run<T, kSeries, 64, 64, 8, 8>(p, stream);
  if (least <= 96 && C <= 128) return run<T, kSeries, 96, 32, 8, 8>(p, stream);
  return run<T, kSeries, 288, 64, 4, 3>(p, stream);
}

}  // namespace

cudaError_t lazy_read(const LazyRead& p, cudaStream_t stream) {
  if (p.bf16)
    return p.series ? choose<__nv_bfloat16, true>(p, stream)
                    : choose<__nv_bfloat16, false>(p, stream);
  return p.series ? choose<float, true>(p, stream) : choose<float, false>(p, stream);
}

}  // namespace horner::cuda
