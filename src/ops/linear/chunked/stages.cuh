// `linear`, level 2: the ring of stages in shared memory, each for one chunk, and the warpgroup that fills it.
#pragma once

#include "cuda/decay.cuh"
#include "ops/linear/chunked/normaliser.cuh"

namespace horner::cuda {
namespace {

enum class Role { plain, dq, dk, ends };  // dq and dk read x and fill a Crossing; ends has no y
template <Role kRole>
constexpr bool kCrosses = kRole == Role::dq || kRole == Role::dk;

template <int kRows, Role kRole>
struct Stage {
  unsigned char q[kRows / 64][kTileBytes];
  unsigned char k[kRows / 64][kTileBytes];
  unsigned char v[1][kTileBytes];
};
template <int kRows>
struct StageWithX : Stage<kRows, Role::plain> {
  unsigned char x[1][kTileBytes];
};
template <int kRows>
struct Stage<kRows, Role::dq> : StageWithX<kRows> {};
template <int kRows>
struct Stage<kRows, Role::dk> : StageWithX<kRows> {};
template <int kRows>
struct Stage<kRows, Role::ends> {
  unsigned char k[kRows / 64][kTileBytes];
  unsigned char v[1][kTileBytes];
};

template <int kRows, Role kRole>
struct Memory {
  static constexpr int kStages = kRole == Role::ends ? 6 : kRole == Role::plain ? 4 : 3;
  static constexpr int kReaders = kRole == Role::ends ? kRows / 16 : 8;  // warps that read a stage
  Stage<kRows, kRole> stage[kStages];
  unsigned char S[2][kRows / 64][kTileBytes];  // the state that enters even and odd chunks, bf16
  unsigned char y[2][kTileBytes];              // staging for the store; each warp has its own rows
  float sums[kStages][kRows];  // norm = sum: entering the chunk; forward by rows, else by columns
  float shift[kStages][64];    // Delta; forward: the floor
  float G[kStages][64];        // log2 of the decay since the chunk's start
  float keys[kStages][64];     // G minus the log weight of the key
  float read[kStages][64];     // factors of q_t S
  uint2 write[kStages][32];    // factors of k_s^T v_s, in pairs
  float inner_columns[4][4][64], inner_rows[4][64];
  // Barriers. full: a stage is loaded; free: all have read it; copied: a copy of the state is ready; taken: it has been read.
  uint64_t full[kStages], free[kStages], copied[2], taken[2];

  __device__ void init(bool decay) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(shared_address(&full[i]), decay ? 33 : 1);
      barrier_init(shared_address(&free[i]), kReaders);
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared_address(&copied[i]), 4);
      barrier_init(shared_address(&taken[i]), 4);
    }
  }
  __device__ Stage<kRows, kRole>& at(int i) { return stage[i % kStages]; }
  __device__ void wait_full(int i) {
    barrier_wait(shared_address(&full[i % kStages]), i / kStages & 1);
  }
  // A stage is free when all have read chunk i - kStages. Threads, not copies, write the decays, so readers and writer
  // meet at a named hardware barrier (number 3 and up; group_sync uses 1 and 2).
  template <bool kDecay>
  __device__ void wait_free(int i) {
    if (i < kStages) return;
    if constexpr (kDecay) {
      asm volatile("bar.sync %0, %1;" ::"r"(3 + i % kStages), "n"(32 * kReaders + 32) : "memory");
    } else {
      barrier_wait(shared_address(&free[i % kStages]), (i / kStages - 1) & 1);
    }
  }
  template <bool kDecay>
  __device__ void release(int i, int chunks) {
    if constexpr (!kDecay) {
      arrive(free[i % kStages]);
    } else if (i + kStages < chunks) {
      asm volatile("bar.arrive %0, %1;" ::"r"(3 + i % kStages), "n"(32 * kReaders + 32) : "memory");
    }
  }
  __device__ void wait_copied(int i) { barrier_wait(shared_address(&copied[i & 1]), i / 2 & 1); }
  __device__ void wait_taken(int i) {  // until chunk i - 2 has read the copy
    if (i >= 2) barrier_wait(shared_address(&taken[i & 1]), (i / 2 - 1) & 1);
  }
  // One lane arrives for its warp.
  __device__ static void arrive(uint64_t& barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&barrier));
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

template <int kRows, bool kReverse, Role kRole, Norm kNorm>
__device__ void load_stage(
    const Sweep& p, const Maps& maps, const Job& job, Memory<kRows, kRole>& m, int i
) {
  const int t = chunk_at<kReverse>(job, i) * 64, slot = i % m.kStages;
  Stage<kRows, kRole>& s = m.at(i);
  const uint32_t full = shared_address(&m.full[slot]);
  barrier_expect(full, sizeof(Stage<kRows, kRole>) + norm_bytes<kNorm, kRows>(p.norm));
  if constexpr (kNorm == Norm::divides || kNorm == Norm::shifts)
    load_norm<kNorm, kRows, kReverse>(p, job, t, m.sums[slot], m.shift[slot], full);
#pragma unroll
  for (int n = 0; n < kRows / 64; ++n) {
    if constexpr (kRole != Role::ends)
      load_tile(shared_address(s.q[n]), &maps.q, full, 64 * n, job.h / p.q.group, t, job.b);
    load_tile(shared_address(s.k[n]), &maps.k, full, 64 * n, job.h / p.k.group, t, job.b);
  }
  load_tile(shared_address(s.v), &maps.v, full, job.first_column, job.h / p.v.group, t, job.b);
  if constexpr (kCrosses<kRole>)
    load_tile(shared_address(s.x), &maps.x, full, job.first_column, job.h / p.x.group, t, job.b);
}

// Log-decays and log weights of tokens 2 l and 2 l + 1 of a chunk, for lane l. Only loaded here: using them would wait for
// memory.
struct Logs {
  float2 g, gain;
};
template <bool kReverse, bool kGains>
__device__ Logs load_logs(const Sweep& p, const Job& job, int i) {
  const int lane = threadIdx.x % 32, chunk = chunk_at<kReverse>(job, min(i, job.chunks - 1));
  const int rows = tokens_in(p, chunk);
  const bool first = 2 * lane < rows, second = 2 * lane + 1 < rows, gains = kGains && p.gains;
  const float* g = head<float>(p.g, job) + (int64_t(chunk) * 64 + 2 * lane) * p.g.t;
  return {
      {first ? g[0] : 0.f, second ? g[p.g.t] : 0.f},
      {first && gains ? g[1] : 0.f, second && gains ? g[p.g.t + 1] : 0.f}};
}

// One warp sums the decays since the chunk's start and computes the factors.
template <int kRows, bool kReverse, Role kRole, bool kGains>
__device__ void prepare_decay(const Logs& logs, Memory<kRows, kRole>& m, int i) {
  const int lane = threadIdx.x % 32;
  const float2 g = {log2_decay(logs.g.x), log2_decay(logs.g.y)};
  const float sum = sum_to_lane(g.x + g.y, lane);
  const float last = __shfl_sync(~0u, sum, 31), before = __shfl_up_sync(~0u, sum, 1);
  const float2 both = {(lane == 0 ? 0.f : before) + g.x, sum};
  float2 keys = both;
  if (kGains) keys = {both.x - logs.gain.x * kLog2e, both.y - logs.gain.y * kLog2e};
  const float2 since = {exp2_fast(both.x), exp2_fast(both.y)};                // e^{G_t}
  const float2 until = {exp2_fast(last - keys.x), exp2_fast(last - keys.y)};  // e^{G_C - G_t}
  const int slot = i % m.kStages;
  reinterpret_cast<float2*>(m.G[slot])[lane] = both;
  if (kGains) reinterpret_cast<float2*>(m.keys[slot])[lane] = keys;
  reinterpret_cast<float2*>(m.read[slot])[lane] = kReverse ? until : since;
  m.write[slot][lane] = weight_pair(kReverse ? since : until);
}

// Loads the stages and prepares their decays. Normally only the first warp of the group works. If a chunk takes less time
// than loading its decays, the four warps take turns.
template <int kRows, bool kDecay, bool kReverse, Role kRole, Norm kNorm>
__device__ void feed(const Sweep& p, const Maps& maps, const Job& job, Memory<kRows, kRole>& m) {
  const Place at;
  constexpr int kFeeders = kRole == Role::ends ? 4 : 1;
  if (at.warp >= kFeeders) return;
  constexpr bool kGains = kDecay && kNorm != Norm::none;
  const int first = kFeeders == 1 ? 0 : at.warp;
  Logs logs{};
  if (kDecay) logs = load_logs<kReverse, kGains>(p, job, first);
  for (int i = first; i < job.chunks; i += kFeeders) {
    m.template wait_free<kDecay>(i);
    if (at.lane == 0) load_stage<kRows, kReverse, kRole, kNorm>(p, maps, job, m, i);
    if (kDecay) {
      prepare_decay<kRows, kReverse, kRole, kGains>(logs, m, i);
      logs = load_logs<kReverse, kGains>(p, job, i + kFeeders);
      barrier_arrive(shared_address(&m.full[i % m.kStages]));
    }
    __syncwarp();
  }
}

#endif

}  // namespace
}  // namespace horner::cuda
