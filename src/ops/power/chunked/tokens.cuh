// `power`, level 2: the rows of a chunk in shared memory, and the factors of its tokens.
#pragma once

#include "cuda/decay.cuh"
#include "cuda/mma.cuh"
#include "ops/power/power.cuh"

namespace horner::cuda {
namespace {

constexpr int kC = kPowerChunk, kWarps = kPowerThreads / 32;

enum class Role { forward, dq, dkv };

template <int kWidth>
struct RowTile {                                   // 128 tokens
  static constexpr int kStride = 2 * kWidth + 16;  // bytes; no bank conflicts
  unsigned char bytes[kC * kStride];
  __device__ uint32_t at(int row, int unit) const {
    return shared_address(bytes) + uint32_t(row * kStride + unit * 16);
  }
};

template <int kK, int kV>
struct Stage {
  RowTile<kK> y;
  RowTile<kV> u;
};
template <int kK, int kV, Role kRole, bool kStateOnly>
struct FullStage : Stage<kK, kV> {
  RowTile<kK> x;
  RowTile<kV> w;
};
template <int kK, int kV>
struct FullStage<kK, kV, Role::forward, false> : Stage<kK, kV> {
  RowTile<kK> x;
};
template <int kK, int kV, Role kRole>
struct FullStage<kK, kV, kRole, true> : Stage<kK, kV> {};

// Factors of the tokens of a chunk, prepared before the chunk is read.
struct Factors {
  float G[kC];               // log2 of the decay since the chunk's start
  float read[kC];            // factors of m(x) S
  float inverse[kC];         // of the queries: 1 / den, 0 after the end
  float delta[kC];           // of the queries: Delta; only in the first block of columns, else 0
  uint2 write[kC / 2];       // factors of u when it is added to the state, in pairs
  uint32_t ones[2][kC / 2];  // the two rows of ones beside u, in pairs
  float kept;                // e^{G_C}
  int tokens;                // number of tokens of the chunk
  int64_t start;             // its first token
};

struct Job {
  int b, h, bh, block = 0, segment = 0;
  int shared;        // the head of k, v and g that query head h reads
  int first, count;  // first chunk, number of chunks

  __device__ Job(const PowerSweep& p, int bh)
      : b(bh / int(p.H)), h(bh % int(p.H)), bh(bh), shared(h / p.state_group) {}
};

struct Lane {
  int warp, lane, g, t;

  __device__ explicit Lane(unsigned thread = threadIdx.x)
      : warp(int(thread / 32 % kWarps)), lane(int(thread % 32)), g(lane / 4), t(lane % 4) {}
  // The same, but opaque to the compiler: it computes addresses again at each use and keeps none in registers.
  __device__ static Lane opaque() { return Lane(unsigned(cuda::opaque(int(threadIdx.x)))); }
  // Which 16 tokens of a chunk the warp owns. Later tiles have more pairs. Warps w and w + 4 share a scheduler, so they get
  // tiles that together have the same work for every w.
  __device__ int tile() const { return warp < kWarps / 2 ? warp : 3 * kWarps / 2 - 1 - warp; }
};

__device__ __forceinline__ int64_t row_at(const Rows& x, const Job& job, int64_t t) {
  return job.b * x.b + (x.group == 1 ? job.h : job.shared) * x.h + t * x.t;
}
template <class T>
__device__ __forceinline__ T* row_of(const Rows& x, const Job& job, int64_t t) {
  return static_cast<T*>(x.data) + row_at(x, job, t);
}

// The rows of a job in memory, at its head and first column.
struct Source {
  const __nv_bfloat16* data;
  int64_t t;  // elements between two tokens
  int width;  // columns
};
struct Sources {
  Source x, y, u, w;
  int64_t T;

  __device__ Sources(const PowerSweep& p, const Job& job, bool reverse, int columns) : T(p.T) {
    const auto at = [&](const Rows& rows, int first, int width) -> Source {
      return {row_of<__nv_bfloat16>(rows, job, 0) + first, rows.t, width - first};
    };
    const Source q = at(p.q, 0, p.K), k = at(p.k, 0, p.K);
    const Source v = at(p.v, job.block * columns, p.V), dO = at(p.dO, job.block * columns, p.V);
    x = reverse ? k : q, y = reverse ? q : k;
    u = reverse ? dO : v, w = reverse ? v : dO;
  }
};

template <int kWidth>
__device__ __forceinline__ void load_rows(
    RowTile<kWidth>& to, const Source& from, int64_t start, int64_t T
) {
  constexpr int kUnits = kWidth / 8, kRows = kPowerThreads / kUnits;
  const unsigned thread = unsigned(opaque(int(threadIdx.x)));
  const int unit = int(thread % kUnits), first = int(thread / kUnits);
  const bool inside = 8 * unit < from.width;
  const __nv_bfloat16* here = from.data + (start + first) * from.t + 8 * unit;
#pragma unroll
  for (int n = 0; n < kC / kRows; ++n, here += kRows * from.t) {
    const bool valid = inside && start + first + n * kRows < T;
    copy_async(to.at(first + n * kRows, unit), valid ? here : from.data, valid);
  }
}

template <int kK, int kV, Role kRole, bool kStateOnly>
__device__ __forceinline__ void load_stage(
    const Sources& from, int64_t start, FullStage<kK, kV, kRole, kStateOnly>& s
) {
  load_rows(s.y, from.y, start, from.T);
  load_rows(s.u, from.u, start, from.T);
  if constexpr (!kStateOnly) load_rows(s.x, from.x, start, from.T);
  if constexpr (!kStateOnly && kRole != Role::forward) load_rows(s.w, from.w, start, from.T);
  copy_commit();
}

// --- factors of the tokens, by one warp; lane l owns tokens 4 l .. 4 l + 3 ------------------------------

// Starts the loads of log-decay, den and Delta, each to the place of the factor that is computed from it.
template <Role kRole>
__device__ __forceinline__ void load_factors(
    const PowerSweep& p, const Job& job, int64_t start, Factors& f
) {
  const int first = 4 * opaque(int(threadIdx.x) % 32);
  const float* g = row_of<float>(p.g, job, 0);
  const int64_t at = int64_t(job.bh) * p.T;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int token = first + n;
    const bool valid = start + token < p.T;
    const int64_t t = valid ? start + token : 0;
    if (p.decays) copy_number_async(f.G + token, g + t * p.g.t, valid);
    if (kRole == Role::forward || !p.normalise) continue;
    copy_number_async(f.inverse + token, p.den + at + t, valid);
    copy_number_async(f.delta + token, p.delta + at + t, valid);
  }
  copy_commit();
}

template <Role kRole>
__device__ __forceinline__ float prepare_factors(
    const PowerSweep& p, const Job& job, int64_t start, Factors& f
) {
  const int tokens = int(min(int64_t(kC), p.T - start));
  copy_wait<0>();
  __syncwarp();
  const int lane = threadIdx.x % 32;
  float G[4], write[4], ones[4], sum = 0.f;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float g = p.decays ? f.G[4 * lane + n] : 0.f;
    G[n] = sum += log2_decay(g);
  }
  const float to_here = sum_to_lane(sum, lane), last = __shfl_sync(~0u, to_here, 31);
  const float before = to_here - sum;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int t = 4 * lane + n;
    G[n] += before;
    const float since = exp2_fast(G[n]), until = exp2_fast(last - G[n]);
    const float valid = t < tokens ? 1.f : 0.f;
    f.G[t] = G[n];
    f.read[t] = kRole == Role::dkv ? until : since;
    write[n] = ones[n] = until * valid;
    if (kRole == Role::forward) continue;
    float inverse = valid, delta = 0.f;
    if (p.normalise && t < tokens) {
      inverse = 1.f / (p.clamps ? fmaxf(f.inverse[t], p.eps) : f.inverse[t]);
      if (job.block == 0) delta = f.delta[t];
    }
    f.inverse[t] = inverse;
    f.delta[t] = delta;
    if (kRole != Role::dkv) continue;
    write[n] = since * inverse;
    ones[n] = -delta * write[n];
  }
#pragma unroll
  for (int n = 0; n < 4; n += 2) {
    const uint2 both = weight_pair({ones[n], ones[n + 1]});
    f.write[2 * lane + n / 2] = weight_pair({write[n], write[n + 1]});
    f.ones[0][2 * lane + n / 2] = both.x;
    f.ones[1][2 * lane + n / 2] = both.y;
  }
  if (lane == 0) f.kept = exp2_fast(last), f.tokens = tokens, f.start = start;
  return last;
}

}  // namespace
}  // namespace horner::cuda
