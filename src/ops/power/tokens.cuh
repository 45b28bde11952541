// `power`, level 2: the rows of a chunk in shared memory, and what is known of each of its tokens.
#pragma once

#include "cuda/warp_product.cuh"
#include "ops/power/power.cuh"

namespace horner::cuda {
namespace {

constexpr int kC = kPowerChunk, kWarps = kPowerThreads / 32;

enum class Role { forward, dq, dkv };

template <int kWidth>
struct RowTile {                                   // 128 tokens
  static constexpr int kStride = 2 * kWidth + 16;  // bytes; free of bank conflicts
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

// What is known of each token of a chunk before it is worked on.
struct Factors {
  float G[kC];               // log2 of the decay since the chunk's start
  float read[kC];            // what scales m(x) S
  float inverse[kC];         // of the queries: 1 / den, 0 after the end
  float delta[kC];           // of the queries: Delta, which counts in the first block of columns
  uint2 write[kC / 2];       // what scales u on its way into the state, in pairs
  uint32_t ones[2][kC / 2];  // the two rows beside u, in pairs
  float kept;                // e^{G_C}
};

struct Job {
  int b, h, bh, block, segment;
  int first, count;  // chunks
};

struct Lane {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  // The same, unknown to the compiler: addresses made of it are made anew and not kept in registers.
  __device__ static Lane anew() {
    Lane at;
    at.warp = hidden(at.warp);
    at.lane = hidden(at.lane);
    at.g = at.lane / 4;
    at.t = at.lane % 4;
    return at;
  }
};

template <class T>
__device__ T* row_of(const PowerRows& x, const Job& job, int64_t t) {
  return static_cast<T*>(x.data) + job.b * x.b + (job.h / x.group) * x.h + t * x.t;
}

template <int kWidth>
__device__ __forceinline__ void load_rows(
    RowTile<kWidth>& to,
    const PowerRows& from,
    const Job& job,
    int64_t start,
    int64_t T,
    int first,
    int width
) {
  constexpr int kUnits = kWidth / 8;
  for (int n = hidden(int(threadIdx.x)); n < kC * kUnits; n += kPowerThreads) {
    const int row = n / kUnits, unit = n % kUnits, column = first + 8 * unit;
    const bool valid = start + row < T && column < width;
    const __nv_bfloat16* address = row_of<__nv_bfloat16>(from, job, valid ? start + row : 0);
    copy_async(to.at(row, unit), address + (valid ? column : 0), valid);
  }
}

template <int kK, int kV, Role kRole, bool kStateOnly>
__device__ __forceinline__ void load_stage(
    const PowerSweep& p, const Job& job, int64_t start, FullStage<kK, kV, kRole, kStateOnly>& s
) {
  const bool reverse = kRole == Role::dkv;
  const int first = job.block * kV;
  load_rows(s.y, reverse ? p.q : p.k, job, start, p.T, 0, p.K);
  load_rows(s.u, reverse ? p.dO : p.v, job, start, p.T, first, p.V);
  if constexpr (!kStateOnly) {
    load_rows(s.x, reverse ? p.k : p.q, job, start, p.T, 0, p.K);
    if constexpr (kRole == Role::dq) load_rows(s.w, p.dO, job, start, p.T, first, p.V);
    if constexpr (kRole == Role::dkv) load_rows(s.w, p.v, job, start, p.T, first, p.V);
  }
  copy_commit();
}

// --- factors of the tokens, by one warp; a lane has tokens 4 l .. 4 l + 3 -------------------------------

// On their way: log-decay, den and Delta, each where the factor made of it will stand.
template <Role kRole>
__device__ __forceinline__ void load_factors(
    const PowerSweep& p, const Job& job, int64_t start, Factors& f
) {
  const int lane = hidden(int(threadIdx.x) % 32);
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int token = 4 * lane + n;
    const bool valid = start + token < p.T;
    const int64_t t = valid ? start + token : 0, at = int64_t(job.bh) * p.T + t;
    if (p.decays) copy_number_async(f.G + token, row_of<float>(p.g, job, t), valid);
    if (kRole == Role::forward || !p.normalise) continue;
    copy_number_async(f.inverse + token, p.den + at, valid);
    copy_number_async(f.delta + token, p.delta + at, valid);
  }
  copy_commit();
}

// A reset (-inf) is held at 2^-127, which is 0: then no difference of two sums is NaN.
template <Role kRole>
__device__ __forceinline__ float prepare_factors(
    const PowerSweep& p, const Job& job, int64_t tokens, Factors& f
) {
  copy_wait<0>();
  __syncwarp();
  const int lane = threadIdx.x % 32;
  float G[4], write[4], ones[4], sum = 0.f;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float g = p.decays ? f.G[4 * lane + n] : 0.f;
    G[n] = sum += fmaxf(g * 1.4426950408889634f, -127.f);
  }
  float before = sum;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const float other = __shfl_up_sync(~0u, before, d);
    if (lane >= d) before += other;
  }
  const float last = __shfl_sync(~0u, before, 31);
  before -= sum;
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
  if (lane == 0) f.kept = exp2_fast(last);
  return last;
}

}  // namespace
}  // namespace horner::cuda
