// `attention`, one token: each key and value is read once.
//
//   x_s = scale q.k_s        m = max_s x_s        o = sum_s 2^{x_s - m} v_s / sum_s 2^{x_s - m}       x in units of log 2
//
// A block owns a span of the keys of one (b, key/value head), for up to four query heads. L
// neighbouring lanes share a key; each lane reads 16 bytes of it at a time and holds its columns of
// q and o in registers. The sums of the groups of lanes are merged in shared memory. The sums of the
// blocks of a row are merged by the block that finishes last.
#include "cuda/launch.cuh"
#include "cuda/types.cuh"
#include "ops/attention/attention.cuh"
#include "ops/attention/vectors.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 128;
constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;

// The keys of a row in the order in which blocks divide them: the cache, the token itself, the sinks
// outside the window.
template <class T>
struct Row {
  const T *keys, *values, *key, *value, *sink_keys, *sink_values;
  int64_t seen, held, count;
  int64_t turn, S;  // key `turn` and those after it lie S slots earlier

  __device__ Row(const AttentionStep& p, int b, int g) {
    const auto at = [&](const Strided& x) {
      return static_cast<const T*>(x.data) + b * x.b + g * x.h;
    };
    seen = p.seen ? p.seen[int64_t(b) * p.G + g] : 0;
    held = min(seen, p.S);
    if (p.window > 0) held = min(held, p.window - 1);
    const int64_t first = p.fixed ? (seen - held) % p.S : p.S - held;
    S = p.S, turn = p.S - first;
    keys = at(p.keys) + first * p.K;
    values = at(p.values) + first * p.V;
    key = at(p.k);
    value = at(p.v);
    sink_keys = at(p.sink_keys);
    sink_values = at(p.sink_values);
    count = held + 1 + (p.N > 0 ? max(int64_t(0), min(p.N, seen - p.window + 1)) : 0);
  }
  __device__ const T* key_at(int64_t j, int K) const {
    return j < held    ? keys + (j < turn ? j : j - S) * K
           : j == held ? key
                       : sink_keys + (j - held - 1) * K;
  }
  __device__ const T* value_at(int64_t j, int V) const {
    return j < held    ? values + (j < turn ? j : j - S) * V
           : j == held ? value
                       : sink_values + (j - held - 1) * V;
  }
};

// What a lane holds of R query heads: its columns of q, and its sums over the keys so far.
template <class T, int L, int N, int R>
struct Heads {
  static constexpr int E = 16 / int(sizeof(T)), kGroups = kThreads / L, kColumns = L * N * E;
  static constexpr int kAhead = R * N == 1 ? 4 : 2;  // keys whose loads are in flight
  float q[R][N][E], m[R], l[R], o[R][N][E];

  // `q`: the first of `heads` queries.
  __device__ Heads(const AttentionStep& p, const T* first, int heads, int lane) {
#pragma unroll
    for (int h = 0; h < R; ++h) {
      const T* from = first + int64_t(min(h, heads - 1)) * p.q.h;
      m[h] = -INFINITY, l[h] = 0.f;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const int column = (n * L + lane) * E;
        unpack(
            column < p.K ? *reinterpret_cast<const uint4*>(from + column) : uint4{}, q[h][n], T()
        );
#pragma unroll
        for (int e = 0; e < E; ++e) q[h][n][e] *= p.scale * kLog2e, o[h][n][e] = 0.f;
      }
    }
  }

  // x_s of every head.
  __device__ void score(const uint4 (&packed)[N], float (&x)[R]) const {
    float key[N][E];
#pragma unroll
    for (int n = 0; n < N; ++n) unpack(packed[n], key[n], T());
#pragma unroll
    for (int h = 0; h < R; ++h) {
      float dot = 0.f;
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 0; e < E; ++e) dot += q[h][n][e] * key[n][e];
      x[h] = lane_sum<L>(dot);
    }
  }

  // Turns scores into weights 2^{x - m}, and rescales the sums so far to the new maximum m.
  __device__ void weigh(float (&x)[kAhead][R]) {
#pragma unroll
    for (int h = 0; h < R; ++h) {
      float most = m[h];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) most = fmaxf(most, x[u][h]);
      const float base = most == -INFINITY ? 0.f : most, shrink = exp2f(m[h] - base);
      m[h] = most;
      l[h] *= shrink;
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 0; e < E; ++e) o[h][n][e] *= shrink;
#pragma unroll
      for (int u = 0; u < kAhead; ++u) x[u][h] = exp2f(x[u][h] - base), l[h] += x[u][h];
    }
  }

  __device__ void add(const uint4 (&packed)[N], const float (&weight)[R]) {
    float value[N][E];
#pragma unroll
    for (int n = 0; n < N; ++n) unpack(packed[n], value[n], T());
#pragma unroll
    for (int h = 0; h < R; ++h)
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 0; e < E; ++e) o[h][n][e] += weight[h] * value[n][e];
  }

  // Reads up to kAhead keys before `end`: from + group, from + group + kGroups, ..
  __device__ void read(
      const AttentionStep& p, const Row<T>& row, int64_t from, int64_t end, int lane
  ) {
    uint4 k[kAhead][N], v[kAhead][N];
    float x[kAhead][R];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int64_t j = from + u * kGroups;
      const T *key = row.key_at(j, p.K), *value = row.value_at(j, p.V);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const int column = (n * L + lane) * E;
        const auto load = [&](const T* x, int width) {
          return j < end && column < width ? __ldcs(reinterpret_cast<const uint4*>(x + column))
                                           : uint4{};
        };
        k[u][n] = load(key, p.K);
        v[u][n] = load(value, p.V);
      }
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      score(k[u], x[u]);
#pragma unroll
      for (int h = 0; h < R; ++h)
        x[u][h] = from + u * kGroups < end ? fminf(x[u][h], p.clamp * kLog2e) : -INFINITY;
    }
    weigh(x);
#pragma unroll
    for (int u = 0; u < kAhead; ++u) add(v[u], x[u]);
  }
};

// Merges column i of n results over disjoint keys. Columns V and V + 1 of a result are m and l, the sum of the weights.
struct Merged {
  float m = -INFINITY, l = 0.f, o = 0.f;

  template <class F>
  __device__ Merged(int n, int V, int i, F&& column_of) {
    for (int j = 0; j < n; ++j) m = fmaxf(m, column_of(j, V));
    const float base = m == -INFINITY ? 0.f : m;
    for (int j = 0; j < n; ++j) {
      const float weight = exp2f(column_of(j, V) - base);
      l += weight * column_of(j, V + 1);
      o += weight * column_of(j, i);
    }
  }
  template <class T>
  __device__ void write(const AttentionStep& p, int64_t head, int i) const {
    static_cast<T*>(p.o)[head * p.V + i] = narrow<T>(o / l);
    if (i == 0 && p.norm) p.norm[head] = (m + log2f(l)) * kLn2;
  }
};

template <class T>
__device__ void write_token(const AttentionStep& p, const Row<T>& row, int b, int g) {
  const int64_t slot = p.fixed ? row.seen % p.S : 0;  // of a ring: no block reads it
  const auto to = [&](const Strided& y, int width) {
    return static_cast<T*>(y.data) + b * y.b + g * y.h + slot * width;
  };
  for (int i = int(threadIdx.x); i < p.K; i += kThreads) to(p.new_key, p.K)[i] = row.key[i];
  for (int i = int(threadIdx.x); i < p.V; i += kThreads) to(p.new_value, p.V)[i] = row.value[i];
  if (threadIdx.x == 0) p.new_seen[int64_t(b) * p.G + g] = row.seen + 1;
}

// Merges the results of the blocks of a row, for R heads. Many loads are in flight at once.
template <class T, int R>
struct Blocks {
  float m[R][kMostStepSplits], l[R][kMostStepSplits], weight[R][kMostStepSplits];

  // `first`: the result of the first block and head. `out`: the first of `heads` heads.
  __device__ void merge(const AttentionStep& p, const float* first, int64_t out, int heads) {
    const int width = p.V + 2;
    for (int at = int(threadIdx.x); at < heads * p.splits; at += kThreads) {
      const int h = at / p.splits, j = at % p.splits;
      const float* from = first + (int64_t(j) * R + h) * width + p.V;
      m[h][j] = __ldcg(from), l[h][j] = __ldcg(from + 1);
    }
    __syncthreads();
    const auto most_of = [&](int h) {
      float most = -INFINITY;
#pragma unroll 8
      for (int j = 0; j < p.splits; ++j) most = fmaxf(most, m[h][j]);
      return most == -INFINITY ? 0.f : most;
    };
    for (int at = int(threadIdx.x); at < heads * p.splits; at += kThreads) {
      const int h = at / p.splits, j = at % p.splits;
      weight[h][j] = exp2f(m[h][j] - most_of(h));
    }
    __syncthreads();
    for (int at = int(threadIdx.x); at < heads * p.V; at += kThreads) {
      const int h = at / p.V, i = at % p.V;
      const float* from = first + h * width + i;
      float o = 0.f, sum = 0.f;
#pragma unroll 16
      for (int j = 0; j < p.splits; ++j) {
        o += weight[h][j] * __ldcg(from + j * (R * width));
        sum += weight[h][j] * l[h][j];
      }
      static_cast<T*>(p.o)[(out + h) * p.V + i] = narrow<T>(o / sum);
      if (i == 0 && p.norm) p.norm[out + h] = (most_of(h) + log2f(sum)) * kLn2;
    }
  }
};

// The result of one group of lanes: o of all heads, then m and l.
template <class T, int L, int N, int R>
__device__ __forceinline__ void store_result(
    float (&to)[R][Heads<T, L, N, R>::kColumns + 2], const Heads<T, L, N, R>& own, int lane
) {
  constexpr int E = Heads<T, L, N, R>::E, kColumns = L * N * E;
#pragma unroll
  for (int h = 0; h < R; ++h) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < E; ++e) to[h][(n * L + lane) * E + e] = own.o[h][n][e];
    if (lane == 0) to[h][kColumns] = own.m[h], to[h][kColumns + 1] = own.l[h];
  }
}

template <class T, int L, int N, int R>
__global__ void __launch_bounds__(
    kThreads,
    R* N == 1                  ? 4
    : R == 1 || sizeof(T) == 4 ? 3
                               : 2
) step_kernel(const __grid_constant__ AttentionStep p) {
  using Own = Heads<T, L, N, R>;
  constexpr int kGroups = Own::kGroups, kColumns = Own::kColumns;
  __shared__ float results[kGroups][R][kColumns + 2];
  __shared__ Blocks<T, R> blocks;
  __shared__ bool last;
  const int lane = int(threadIdx.x) % L, group = int(threadIdx.x) / L;
  const int chunks = (p.r + R - 1) / R;
  const int split = int(blockIdx.x) % p.splits, place = int(blockIdx.x) / p.splits;
  const int chunk = place % chunks, g = place / chunks % p.G, b = place / chunks / p.G;
  const int first_head = g * p.r + chunk * R, heads = min(R, p.r - chunk * R);
  const Row<T> row(p, b, g);
  Own own(p, static_cast<const T*>(p.q.data) + b * p.q.b + first_head * p.q.h, heads, lane);

  const int splits = p.fixed ? kMostStepSplits : p.splits;
  const int64_t share = max((row.count + splits - 1) / splits, p.fixed ? kFixedShare : int64_t(1));
  const int64_t first = split * share;
  const int64_t end = min(row.count, first + share);
  for (int64_t from = first; from < end; from += kGroups * Own::kAhead)
    own.read(p, row, from + group, end, lane);
  store_result<T, L, N, R>(results[group], own, lane);
  if (split == p.splits - 1 && chunk == 0 && p.new_key.data) write_token(p, row, b, g);
  __syncthreads();

  const int64_t out = int64_t(b) * p.G * p.r + first_head;
  const auto partial = [&](int j, int h) {
    return p.partial + ((int64_t(place) * p.splits + j) * R + h) * (p.V + 2);
  };
  for (int at = int(threadIdx.x); at < heads * p.V; at += kThreads) {
    const int h = at / p.V, i = at % p.V;
    const Merged sum(kGroups, p.V, i, [&](int j, int c) {
      return results[j][h][c < p.V ? c : kColumns + c - p.V];
    });
    if (p.splits == 1) {
      sum.write<T>(p, out + h, i);
    } else {
      partial(split, h)[i] = sum.o;
      if (i == 0) partial(split, h)[p.V] = sum.m, partial(split, h)[p.V + 1] = sum.l;
    }
  }
  if (p.splits == 1) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)  // the last one sets it back to zero
    last = atomicInc(p.arrived + place, unsigned(p.splits - 1)) == unsigned(p.splits - 1);
  __syncthreads();
  if (!last) return;
  __threadfence();
  blocks.merge(p, partial(0, 0), out, heads);
}

template <class T, int R>
cudaError_t run(const AttentionStep& p, cudaStream_t stream) {
  const int64_t blocks = p.B * p.G * ((p.r + R - 1) / R) * p.splits;
  const int vectors = (max(p.K, p.V) * int(sizeof(T)) + 15) / 16;
  const auto kernel = vectors <= 8    ? step_kernel<T, 8, 1, R>
                      : vectors <= 16 ? step_kernel<T, 16, 1, R>
                                      : step_kernel<T, 16, 2, R>;
  if (vectors > 32 || p.splits > kMostStepSplits) return cudaErrorInvalidValue;
  kernel<<<unsigned(blocks), kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

template <class T>
cudaError_t run_heads(const AttentionStep& p, cudaStream_t stream) {
  return p.r == 1 ? run<T, 1>(p, stream) : run<T, 4>(p, stream);
}

}  // namespace

int attention_step_heads(int r) { return r == 1 ? 1 : 4; }
int attention_step_blocks(int r) { return r == 1 ? 4 : 6; }

cudaError_t attention_step(const AttentionStep& p, cudaStream_t stream) {
  switch (p.type) {
    case Element::f32: return run_heads<float>(p, stream);
    case Element::f16: return run_heads<__half>(p, stream);
    case Element::bf16: return run_heads<__nv_bfloat16>(p, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace horner::cuda
