// `power`, level 2: the work of one block, a sweep over chunks of 128 tokens on tensor cores.
//
// The three sweeps are the same algorithm. Each token of a chunk ("own") reads the state and the tokens of its chunk
// ("others"). Then the others are added to the state:
//
//   sweep     direction   own x, w   others y, u   state              results of the own token
//   forward   forward     q          k, v          S                  o
//   dq        forward     q, do      k, v          S                  dq
//   dkv       reverse     k, v       q, do         Z                  dk, dv
#pragma once

#include "ops/power/chunked/token_results.cuh"

namespace horner::cuda {
namespace {

template <int kK, int kV, Role kRole, bool kStateOnly>
struct Memory {
  FullStage<kK, kV, kRole, kStateOnly> stage[2];
  unsigned char copy[kStateOnly ? 1 : 2]
                    [(kV + 8) * Features<kK>::kStride];      // W S in bf16, [column][feature]
  float ones[kStateOnly ? 1 : 2][8 * Features<kK>::kTiles];  // its column of ones, fp32
  Factors factors[2];
  Job job;  // in shared memory, to save registers
  Sources from;
  alignas(16) unsigned char staging[kStateOnly ? 1 : kWarps][16 * (2 * (kK > kV ? kK : kV) + 16)];
};

// 256 threads hold the state in registers and update it. If the state is small (K <= 16), 256 more threads read its copy at
// the same time; else the same threads do both.
template <int kK, bool kStateOnly>
constexpr bool kReadersApart = kK <= 16 && !kStateOnly;
template <int kK, bool kStateOnly>
constexpr int kSweepThreads = kReadersApart<kK, kStateOnly> ? 2 * kPowerThreads : kPowerThreads;

template <int kThreads>
__device__ __forceinline__ void meet() {  // a barrier for threads on different code paths
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// The first token of chunk i of a job.
template <Role kRole>
__device__ __forceinline__ int64_t start_of(const Job& job, int i) {
  return int64_t(job.first + (kRole == Role::dkv ? job.count - 1 - i : i)) * kC;
}

template <int kK, int kV, Role kRole>
__device__ __forceinline__ void read_chunk(
    const PowerSweep& p, Memory<kK, kV, kRole, false>& m, int i
) {
  const auto& s = m.stage[i & 1];
  const Factors& f = m.factors[i & 1];
  const Lane own = Lane::opaque();
  const unsigned char* copy = m.copy[i & 1];
  const float* ones = m.ones[i & 1];
  unsigned char* staging = m.staging[own.warp];
  if constexpr (kRole == Role::forward) compute_o<kK, kV>(s, copy, f, p, m.job, staging, own);
  if constexpr (kRole == Role::dq) compute_dq<kK, kV>(s, copy, ones, f, p, m.job, staging, own);
  if constexpr (kRole == Role::dkv) compute_dkv<kK, kV>(s, copy, ones, f, p, m.job, staging, own);
}

// The job of this block: a head, a block of columns and a segment of time.
__device__ __forceinline__ Job find_job(const PowerSweep& p, bool skips_first) {
  const int heads = int(p.B * p.H), chunks = int((p.T + kC - 1) / kC);
  Job job(p, int(blockIdx.x) % heads);
  job.block = int(blockIdx.x) / heads % p.blocks;
  job.segment = int(blockIdx.x) / heads / p.blocks + (skips_first ? 1 : 0);
  job.first = job.segment * p.length;
  job.count = min(p.length, chunks - job.first);
  return job;
}

// The state that enters the segment: the initial one, or the one that the sweep over states left.
template <int kK, int kV, Role kRole, bool kStateOnly>
__device__ __forceinline__ void enter_segment(
    StateTiles<kK, kV>& S, const PowerSweep& p, const Job& job
) {
  constexpr bool kReverse = kRole == Role::dkv;
  if (!kReverse && job.segment == 0) {
    if (p.S_first != nullptr) load_state<kK, kV>(S, state_slot<kK, kV>(p.S_first, p, job));
  } else if (!kStateOnly && !kReverse) {
    load_state<kK, kV>(S, state_slot<kK, kV>(p.S, p, job, p.segments, job.segment - 1));
  } else if (!kStateOnly && job.segment < p.segments - 1) {
    load_state<kK, kV>(S, state_slot<kK, kV>(p.Z, p, job, p.segments, job.segment + 1));
  }
}

// Stores what the sweep leaves: the state of each segment, or the last state. passed, end_decay: log2.
template <int kK, int kV, Role kRole, bool kStateOnly>
__device__ __forceinline__ void leave_segment(
    StateTiles<kK, kV>& S, const PowerSweep& p, const Job& job, float passed, float end_decay
) {
  constexpr bool kReverse = kRole == Role::dkv;
  if constexpr (kStateOnly) {
    float* states = kReverse ? p.Z : p.S;
    store_state<kK, kV>(S, state_slot<kK, kV>(states, p, job, p.segments, job.segment));
    if (threadIdx.x == 0 && job.block == 0) p.passed[job.bh * p.segments + job.segment] = passed;
  } else if constexpr (kReverse) {
    if (job.segment == 0 && p.Z_last != nullptr) {
      store_state<kK, kV>(S, state_slot<kK, kV>(p.Z_last, p, job));
      if (threadIdx.x == 0 && job.block == 0) p.dS_left[job.bh] = exp2_fast(end_decay);
    }
  } else if (job.segment == p.segments - 1 && p.S_last != nullptr) {
    store_state<kK, kV>(S, state_slot<kK, kV>(p.S_last, p, job));
  }
}

// Rows of the two copies that nothing else writes.
template <int kK, int kV, Role kRole>
__device__ __forceinline__ void clear_padding(Memory<kK, kV, kRole, false>& m) {
  constexpr int kStride = Features<kK>::kStride, kWords = 6 * kStride / 4;
  for (int n = threadIdx.x; n < 2 * kWords; n += kPowerThreads)
    reinterpret_cast<uint32_t*>(m.copy[n / kWords] + (kV + 2) * kStride)[n % kWords] = 0u;
}

// The rows of chunk i + 1 begin to load.
template <int kK, int kV, Role kRole, bool kStateOnly>
__device__ __forceinline__ void load_next(
    const PowerSweep& p, Memory<kK, kV, kRole, kStateOnly>& m, int i
) {
  load_stage(m.from, start_of<kRole>(m.job, i + 1), m.stage[(i + 1) & 1]);
  if (threadIdx.x < 32)
    load_factors<kRole>(p, m.job, start_of<kRole>(m.job, i + 1), m.factors[(i + 1) & 1]);
}

// Log2 of the decay from the end of this segment to the last token.
__device__ __forceinline__ float decay_after(const PowerSweep& p, const Job& job) {
  float sum = 0.f;
  for (int n = job.segment + 1; n < p.segments; ++n) sum += p.passed[job.bh * p.segments + n];
  return sum;
}

// The threads that read the copies while others update the state.
template <int kThreads, int kK, int kV, Role kRole>
__device__ __forceinline__ void read_chunks(const PowerSweep& p, Memory<kK, kV, kRole, false>& m) {
  for (int i = 0; i < m.job.count; ++i) {
    meet<kThreads>();
    read_chunk<kK, kV, kRole>(p, m, i);
  }
}

// A block owns kV columns of one head and walks over the chunks of its segment. A warp owns some features of the state, in
// registers, and 16 tokens of each chunk. Shared memory: two stages of rows, two copies of the state. One barrier per
// chunk: while chunk i is read, the rows of chunk i + 1 load and the state that enters it is copied.
template <int kK, int kV, Role kRole, bool kStateOnly>
__device__ __forceinline__ void sweep(const PowerSweep& p, unsigned char* raw) {
  Memory<kK, kV, kRole, kStateOnly>& m = *reinterpret_cast<Memory<kK, kV, kRole, kStateOnly>*>(raw);
  constexpr bool kReverse = kRole == Role::dkv, kApart = kReadersApart<kK, kStateOnly>;
  constexpr int kThreads = kSweepThreads<kK, kStateOnly>;
  if (threadIdx.x == 0) {
    m.job = find_job(p, kStateOnly && kReverse);
    m.from = Sources(p, m.job, kReverse, kV);
  }
  __syncthreads();
  const Job& job = m.job;
  if constexpr (kApart) {
    if (threadIdx.x >= kPowerThreads) {
      read_chunks<kThreads>(p, m);
      return;
    }
  }

  StateTiles<kK, kV> S = {};
  enter_segment<kK, kV, kRole, kStateOnly>(S, p, job);
  const bool from_end = kReverse && !kStateOnly && p.dS != nullptr;
  const auto dS = [&]() -> const float* {
    return from_end ? state_slot<kK, kV>(p.dS, p, job) - threadIdx.x + opaque(int(threadIdx.x))
                    : nullptr;
  };
  float end_decay = from_end && p.decays ? decay_after(p, job) : 0.f;  // log2, after this chunk

  load_stage(m.from, start_of<kRole>(job, 0), m.stage[0]);
  float passed = 0.f;
  if (threadIdx.x < 32) {
    load_factors<kRole>(p, job, start_of<kRole>(job, 0), m.factors[0]);
    passed += prepare_factors<kRole>(p, job, start_of<kRole>(job, 0), m.factors[0]);
  }
  if constexpr (!kStateOnly) {
    clear_padding(m);
    copy_state<kK, kV>(S, m.copy[0], m.ones[0], p, dS(), exp2_fast(end_decay), Lane());
  }

  for (int i = 0; i < job.count; ++i) {
    const auto& s = m.stage[i & 1];
    const Factors& f = m.factors[i & 1];
    copy_wait<0>();
    meet<kThreads>();
    const bool more = i + 1 < job.count;
    if (more) load_next(p, m, i);
    if constexpr (!kStateOnly && !kApart) read_chunk<kK, kV, kRole>(p, m, i);
    update_state<kK, kV>(S, s, f, p.decays || (kReverse && p.normalise), f.tokens, Lane::opaque());
    if (from_end && p.decays) end_decay += log2f(fmaxf(f.kept, 0x1p-126f));
    if (!more) continue;
    const int next = (i + 1) & 1;
    if (threadIdx.x < 32)
      passed += prepare_factors<kRole>(p, job, start_of<kRole>(job, i + 1), m.factors[next]);
    if constexpr (!kStateOnly) {
      const float left = exp2_fast(end_decay);
      copy_state<kK, kV>(S, m.copy[next], m.ones[next], p, dS(), left, Lane::opaque());
    }
  }

  leave_segment<kK, kV, kRole, kStateOnly>(S, p, job, passed, end_decay);
}

// --- states: from the op's layout to the registers' layout and back -----------------------------------------

__device__ inline Job whole_job(const PowerSweep& p) {
  Job job(p, int(blockIdx.x));
  job.block = int(blockIdx.y);
  return job;
}

// dual: a gradient. It is imported once: at i <= j, in the first block of columns, in the first head of a group.
template <int kK, int kV>
__device__ void import_state(const PowerSweep& p, const float* from, float* states, bool dual) {
  const Job job = whole_job(p);
  float* to = state_slot<kK, kV>(states, p, job);
  for (int n = 0; n < register_at<kV>(Features<kK>::kSlots, 0, 0); n += kPowerThreads) to[n] = 0.f;
  if (dual && job.h % p.state_group != 0) return;
  from += state_at(p, job.bh / p.state_group, 0, 0);
  for_state<kK, kV>(p, job, [&](int n, int m, int e, int i, int j, int column) {
    const int monomial = monomial_at(p, i, j);
    if (monomial < 0 || (dual && (i > j || (column == p.V && job.block > 0)))) return;
    to[register_at<kV>(n, m, e)] = from[state_at(p, 0, monomial, column)];
  });
}

template <int kK, int kV>
__device__ void export_last(const PowerSweep& p) {
  const Job job = whole_job(p);
  if (job.h % p.state_group != 0) return;
  const float* from = state_slot<kK, kV>(p.S_last, p, job);
  for_state<kK, kV>(p, job, [&](int n, int m, int e, int i, int j, int column) {
    const int monomial = monomial_at(p, i, j);
    if (i > j || monomial < 0 || (column == p.V && job.block > 0)) return;
    float x = from[register_at<kV>(n, m, e)];
    if (column == p.V) x += from[register_at<kV>(n, m, e) + 4];
    p.last[state_at(p, job.bh / p.state_group, monomial, column)] = x;
  });
}

template <int kK, int kV>
__device__ void export_first_grad(const PowerSweep& p) {
  const Job job = whole_job(p);
  const float* from = state_slot<kK, kV>(p.Z_last, p, job);
  for_state<kK, kV>(p, job, [&](int n, int m, int e, int i, int j, int column) {
    const int monomial = monomial_at(p, i, j);
    if (i > j || monomial < 0) return;
    float x = from[register_at<kV>(n, m, e)];
    if (column == p.V) x += from[register_at<kV>(n, m, e) + 4];
    x *= weight_of(p, i, j);
    const bool once = job.h % p.state_group == 0 && (column < p.V || job.block == 0);
    if (p.last_grad && once)
      x += p.dS_left[job.bh] * p.last_grad[state_at(p, job.bh / p.state_group, monomial, column)];
    if (column < p.V) {
      p.first_grad[state_at(p, job.bh, monomial, column)] = x;
    } else {  // each block has its own part of Delta
      p.first_grad_ones[(int64_t(job.block) * p.B * p.H + job.bh) * feature_count(p) + monomial] =
          x;
    }
  });
}

}  // namespace
}  // namespace horner::cuda
