// `power`, level 2: one sweep over chunks of 128 tokens on tensor cores, as a block does it.
//
// All three sweeps have one form. Tokens of the chunk read the state and each other; then the others join it:
//
//   sweep     direction   own x, w   others y, u   state              own token's results
//   forward   forward     q          k, v          S                  o
//   dq        forward     q, do      k, v          S                  dq
//   dkv       reverse     k, v       q, do         Z                  dk, dv
#pragma once

#include "ops/power/chunked/readers.cuh"

namespace horner::cuda {
namespace {

template <int kK, int kV, Role kRole, bool kStateOnly>
struct Memory {
  FullStage<kK, kV, kRole, kStateOnly> stage[2];
  unsigned char copy[kStateOnly ? 1 : 2]
                    [(kV + 8) * Features<kK>::kStride];      // W S in bf16, [column][feature]
  float ones[kStateOnly ? 1 : 2][8 * Features<kK>::kTiles];  // its column of ones, fp32
  Factors factors[2];
  Job job;  // here, and not in registers
  Sources from;
  alignas(16) unsigned char staging[kStateOnly ? 1 : kWarps][16 * (2 * (kK > kV ? kK : kV) + 16)];
};

// The 256 threads of a block that have the state also read it, or, where the state is small enough, as many others do
// while they update it.
template <int kK, bool kStateOnly>
constexpr bool kReadersApart = kK <= 16 && !kStateOnly;
template <int kK, bool kStateOnly>
constexpr int kSweepThreads = kReadersApart<kK, kStateOnly> ? 2 * kPowerThreads : kPowerThreads;

template <int kThreads>
__device__ __forceinline__ void meet() {  // of all threads, wherever they are
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// Chunk i of a job: its first token.
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

// A block walks over the chunks of its segment. Every warp has the features of its i in the state, in
// registers, and 16 tokens of each chunk. Shared memory: two stages of rows, two copies of the state. One barrier
// per chunk: chunk i is read while the rows of i + 1 arrive and the state for it is copied.
template <int kK, int kV, Role kRole, bool kStateOnly>
__device__ __forceinline__ void sweep(const PowerSweep& p, unsigned char* raw) {
  Memory<kK, kV, kRole, kStateOnly>& m = *reinterpret_cast<Memory<kK, kV, kRole, kStateOnly>*>(raw);
  constexpr bool kReverse = kRole == Role::dkv, kApart = kReadersApart<kK, kStateOnly>;
  constexpr int kThreads = kSweepThreads<kK, kStateOnly>;
  const int heads = int(p.B * p.H), chunks = int((p.T + kC - 1) / kC);
  if (threadIdx.x == 0) {
    Job job(p, int(blockIdx.x) % heads);
    job.block = int(blockIdx.x) / heads % p.blocks;
    job.segment = int(blockIdx.x) / heads / p.blocks + (kStateOnly && kReverse ? 1 : 0);
    job.first = job.segment * p.length;
    job.count = min(p.length, chunks - job.first);
    m.job = job;
    m.from = Sources(p, job, kReverse, kV);
  }
  __syncthreads();
  const Job& job = m.job;
  if constexpr (kApart) {
    if (threadIdx.x >= kPowerThreads) {
      for (int i = 0; i < job.count; ++i) {
        meet<kThreads>();
        read_chunk<kK, kV, kRole>(p, m, i);
      }
      return;
    }
  }

  StateTiles<kK, kV> S = {};
  if (!kReverse && job.segment == 0) {
    if (p.S_first != nullptr) load_state<kK, kV>(S, state_slot<kK, kV>(p.S_first, p, job));
  } else if (!kStateOnly && !kReverse) {
    load_state<kK, kV>(S, state_slot<kK, kV>(p.S, p, job, p.segments, job.segment - 1));
  } else if (!kStateOnly && job.segment < p.segments - 1) {
    load_state<kK, kV>(S, state_slot<kK, kV>(p.Z, p, job, p.segments, job.segment + 1));
  }
  const bool from_end = kReverse && !kStateOnly && p.dS != nullptr;
  const auto dS = [&]() -> const float* {
    return from_end ? state_slot<kK, kV>(p.dS, p, job) - threadIdx.x + opaque(int(threadIdx.x))
                    : nullptr;
  };
  float end_decay = 0.f;  // log2, from this chunk's end to the last token
  if (from_end && p.decays) {
    for (int n = job.segment + 1; n < p.segments; ++n)
      end_decay += p.passed[job.bh * p.segments + n];
  }

  load_stage(m.from, start_of<kRole>(job, 0), m.stage[0]);
  float passed = 0.f;
  if (threadIdx.x < 32) {
    load_factors<kRole>(p, job, start_of<kRole>(job, 0), m.factors[0]);
    passed += prepare_factors<kRole>(p, job, start_of<kRole>(job, 0), m.factors[0]);
  }
  if constexpr (!kStateOnly) {
    for (int n = threadIdx.x; n < 2 * 6 * Features<kK>::kStride / 4; n += kPowerThreads) {
      const int words = 6 * Features<kK>::kStride / 4;  // rows that no one writes
      reinterpret_cast<uint32_t*>(m.copy[n / words] + (kV + 2) * Features<kK>::kStride)[n % words] =
          0u;
    }
    copy_state<kK, kV>(S, m.copy[0], m.ones[0], p, dS(), exp2_fast(end_decay), Lane());
  }

  for (int i = 0; i < job.count; ++i) {
    const auto& s = m.stage[i & 1];
    const Factors& f = m.factors[i & 1];
    copy_wait<0>();
    meet<kThreads>();
    const bool more = i + 1 < job.count;
    if (more) {
      load_stage(m.from, start_of<kRole>(job, i + 1), m.stage[(i + 1) & 1]);
      if (threadIdx.x < 32)
        load_factors<kRole>(p, job, start_of<kRole>(job, i + 1), m.factors[(i + 1) & 1]);
    }
    if constexpr (!kStateOnly && !kApart) read_chunk<kK, kV, kRole>(p, m, i);
    update_state<kK, kV>(S, s, f, p.decays || (kReverse && p.normalise), f.tokens, Lane::opaque());
    if (from_end && p.decays) end_decay += log2f(fmaxf(f.kept, 0x1p-126f));
    if (more) {
      if (threadIdx.x < 32)
        passed +=
            prepare_factors<kRole>(p, job, start_of<kRole>(job, i + 1), m.factors[(i + 1) & 1]);
      if constexpr (!kStateOnly)
        copy_state<kK, kV>(
            S,
            m.copy[(i + 1) & 1],
            m.ones[(i + 1) & 1],
            p,
            dS(),
            exp2_fast(end_decay),
            Lane::opaque()
        );
    }
  }

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

// --- states between the op's layout and the registers' ------------------------------------------------------

__device__ inline Job whole_job(const PowerSweep& p) {
  Job job(p, int(blockIdx.x));
  job.block = int(blockIdx.y);
  return job;
}

// dual: a gradient, which stands once: at i <= j, in the first block of columns, in the first head of a group.
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
    } else {  // each block has its part of Delta
      p.first_grad_ones[(int64_t(job.block) * p.B * p.H + job.bh) * feature_count(p) + monomial] =
          x;
    }
  });
}

}  // namespace
}  // namespace horner::cuda
