// `delta`: the two sweeps over time, forward and reverse (chunked.cuh).
#include "cuda/launch.cuh"
#include "ops/delta/chunked.cuh"

namespace horner::cuda {
namespace {

constexpr int kBlock = 128;  // four warps of 16 value columns

template <int kKeys>
struct Stage {
  unsigned char k[kKeys / 64][kTileBytes], q[kKeys / 64][kTileBytes];
  unsigned char v[kTileBytes];  // or do, in reverse: the block's 64 columns
  unsigned char inverse[kTileBytes], scores[kTileBytes];
  float read[64], write[64];  // e^G, b e^{G_C-G}; the last e^G is e^{G_C}
};
template <int kKeys>
struct Memory {
  Stage<kKeys> stage[2];
};

template <int kKeys>
using Transposed = float[kKeys / 64][8][4];  // a warp's 16 columns of the state

// What a block works on.
struct Job {
  Heads h;
  int64_t n;
  Span span;
  int chunks;
  int first;   // value column of the block
  int column;  // of the warp

  __device__ Job(const DeltaChunks& p, const Place& me) : h(0, 1) {
    const unsigned blocks = unsigned(p.V + 63) / 64, head = blockIdx.x / blocks;
    h = Heads(int(head % unsigned(p.H)), 1);
    n = head / unsigned(p.H);
    span = span_at(p.sequences, n);
    chunks = int((span.tokens + kChunk - 1) / kChunk);
    first = int(blockIdx.x % blocks) * 64;
    column = first + 16 * me.warp;
  }
};

// Elements of the state between registers and memory: f(element, address of it).
template <int kKeys, class F>
__device__ void for_state(
    Transposed<kKeys>& S,
    const StateView& s,
    const DeltaChunks& p,
    const Job& job,
    const Place& me,
    F&& f
) {
  if (!s.data) return;
  float* base = static_cast<float*>(s.data) + job.n * s.b + job.h.own * s.h;
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int k = 8 * n + 2 * me.i + e % 2, v = job.column + me.r + 8 * (e / 2);
      if (k < p.K && v < p.V) f(S[n / 8][n % 8][e], base + k * s.r + v * s.n);
    }
  }
}

template <int kKeys, bool kQueries>
__device__ void load_stage(
    Stage<kKeys>& s,
    const DeltaChunks& p,
    const Rows& values,
    const Job& job,
    int i,
    const Place& me
) {
  const Chunk c = chunk_at(job.span, i);
  load_chunk<kKeys / 64, kBlock>(shared_address(s.k), p.k, c, job.h, 0, p.K, me);
  load_chunk<1, kBlock>(shared_address(s.v), values, c, job.h, job.first, p.V, me);
  const int64_t slot = job.span.slot + i;
  load_matrix<1, 64, kBlock>(shared_address(s.inverse), square(p.inverse, p, slot, job.h), me);
  const float* factors = p.factors + (slot * p.H + job.h.own) * 128;
  if (me.warp == 0) copy_async(shared_address(s.read) + 16 * me.lane, factors + 4 * me.lane, true);
  if constexpr (kQueries) {
    load_chunk<kKeys / 64, kBlock>(shared_address(s.q), p.q, c, job.h, 0, p.K, me);
    load_matrix<1, 64, kBlock>(shared_address(s.scores), square(p.scores, p, slot, job.h), me);
  }
}

// The bf16 state to memory, columns 16 j .. of it.
template <int kKeys>
__device__ void store_state(
    void* all,
    const uint32_t (&a)[4],
    int j,
    const DeltaChunks& p,
    const Job& job,
    int i,
    const Place& me
) {
  const int64_t head = (job.span.slot + i) * p.H + job.h.own;
  const int64_t row = head * (p.V <= 64 ? 64 : 128) + job.column + me.r;
  __nv_bfloat16* to = static_cast<__nv_bfloat16*>(all) + row * kKeys + 16 * j;
  store_sixteen(to, a[0], a[2], true, 16, me);
  store_sixteen(to + 8 * kKeys, a[1], a[3], true, 16, me);
}

template <int kKeys>
__device__ void keep(Transposed<kKeys>& S, float kept) {
#pragma unroll
  for (int e = 0; e < kKeys / 2; ++e) S[e / 32][e / 4 % 8][e % 4] *= kept;
}

// kQueries: o is wanted; else E and the states are.
template <int kKeys, bool kQueries>
__global__ void __launch_bounds__(kBlock, 2) forward_kernel(const __grid_constant__ DeltaChunks p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Memory<kKeys>& m = *reinterpret_cast<Memory<kKeys>*>(memory);
  const Place start(int(threadIdx.x));
  const Job job(p, start);
  Transposed<kKeys> S = {};
  for_state<kKeys>(S, p.first, p, job, start, [](float& x, const float* from) { x = *from; });
  if (job.chunks > 0) load_stage<kKeys, kQueries>(m.stage[0], p, p.v, job, 0, start);
  copy_commit();
  for (int i = 0; i < job.chunks; ++i) {
    const Place me(anew(int(threadIdx.x)));  // addresses are made anew: registers are scarce
    const Reader reader(me);
    const Chunk c = chunk_at(job.span, i);
    copy_wait<0>();
    __syncthreads();
    if (i + 1 < job.chunks)
      load_stage<kKeys, kQueries>(m.stage[(i + 1) & 1], p, p.v, job, i + 1, me);
    copy_commit();
    const Stage<kKeys>& s = m.stage[i & 1];
    const uint32_t ks = shared_address(s.k);
    Product E = {}, O = {};
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {  // K S, Q S
      uint32_t a[4];
      round_columns(a, S[j / 4], j % 4);
      if constexpr (!kQueries) store_state<kKeys>(p.S, a, j, p, job, i, me);
      add_rows(E, a, ks, j, 0, reader);
      if constexpr (kQueries) add_rows(O, a, shared_address(s.q), j, 0, reader);
    }
    uint32_t a[4][4];
    weigh_columns(E, s.read, me);
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // V - e^G K S
      load_columns(a[j], shared_address(s.v), me.warp, j, reader);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float* two = E[2 * j + e / 2] + 2 * (e % 2);
        two[0] = low_half(a[j][e]) - two[0];
        two[1] = high_half(a[j][e]) - two[1];
      }
      round_columns(a[j], E, j);
    }
#pragma unroll
    for (int e = 0; e < 32; ++e) E[e / 4][e % 4] = 0.f;
#pragma unroll
    for (int j = 0; j < 4; ++j) add_rows(E, a[j], shared_address(s.inverse), j, j, reader);
    if constexpr (kQueries) {
      weigh_columns(O, s.read, me);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) O[2 * j][e] *= p.scale, O[2 * j + 1][e] *= p.scale;
        round_columns(a[j], E, j);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) add_rows(O, a[j], shared_address(s.scores), j, j, reader);
#pragma unroll
      for (int j = 0; j < 4; ++j) round_columns(a[j], O, j);
      store_tokens(a, p.out, c, job.h, job.column, p.V, me);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) round_columns(a[j], E, j);
      store_tokens(a, p.error, c, job.h, job.column, p.V, me);
    }
    weigh_columns(E, s.write, me);
    keep<kKeys>(S, s.read[63]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // S' = e^{G_C} S + K^T diag(b e^{G_C-G}) E
      round_columns(a[j], E, j);
#pragma unroll
      for (int n = 0; n < kKeys / 64; ++n)
        add_columns(S[n], a[j], ks + n * kTileBytes, j, 3, reader);
    }
  }
  for_state<kKeys>(S, p.last, p, job, start, [](float x, float* to) { *to = x; });
}

// Bf16 pairs over tokens times a factor per token.
__device__ uint32_t weigh_pair(uint32_t two, float2 f) {
  return pack(low_half(two) * f.x, high_half(two) * f.y);
}

template <int kKeys>
__global__ void __launch_bounds__(kBlock, 2) reverse_kernel(const __grid_constant__ DeltaChunks p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Memory<kKeys>& m = *reinterpret_cast<Memory<kKeys>*>(memory);
  const Place me(int(threadIdx.x));
  const Reader reader(me);
  const Job job(p, me);
  Transposed<kKeys> Z = {};
  for_state<kKeys>(Z, p.first, p, job, me, [](float& x, const float* from) { x = *from; });
  if (job.chunks > 0) load_stage<kKeys, true>(m.stage[0], p, p.out, job, job.chunks - 1, me);
  copy_commit();
  for (int i = job.chunks - 1; i >= 0; --i) {
    const Chunk c = chunk_at(job.span, i);
    const Stage<kKeys>& s = m.stage[(job.chunks - 1 - i) & 1];
    copy_wait<0>();
    __syncthreads();
    if (i > 0) load_stage<kKeys, true>(m.stage[(job.chunks - i) & 1], p, p.out, job, i - 1, me);
    copy_commit();
    const uint32_t ks = shared_address(s.k), qs = shared_address(s.q);
    Product d = {};
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {  // K Z
      uint32_t a[4];
      round_columns(a, Z[j / 4], j % 4);
      store_state<kKeys>(p.Z, a, j, p, job, i, me);
      add_rows(d, a, ks, j, 0, reader);
    }
    weigh_columns(d, s.write, me);
    uint32_t a[4][4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // + P^T dO
      load_columns(a[j], shared_address(s.v), me.warp, j, reader);
      add_columns(d, a[j], shared_address(s.scores), j, j, reader);
    }
    keep<kKeys>(Z, s.read[63]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // Z += Q^T diag(scale e^G) dO
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int t = 16 * j + 8 * (e / 2) + 2 * me.i;
        const float2 f = *reinterpret_cast<const float2*>(s.read + t);
        a[j][e] = weigh_pair(a[j][e], {f.x * p.scale, f.y * p.scale});
      }
#pragma unroll
      for (int n = 0; n < kKeys / 64; ++n)
        add_columns(Z[n], a[j], qs + n * kTileBytes, j, 3, reader);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) round_columns(a[j], d, j);
#pragma unroll
    for (int e = 0; e < 32; ++e) d[e / 4][e % 4] = 0.f;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      add_columns(d, a[j], shared_address(s.inverse), j, j, reader);  // dV = A^T (..)
#pragma unroll
    for (int j = 0; j < 4; ++j) round_columns(a[j], d, j);
    store_tokens(a, p.dv, c, job.h, job.column, p.V, me);
    weigh_columns(d, s.read, me);
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // Z -= K^T diag(e^G) dV
      round_columns(a[j], d, j);
#pragma unroll
      for (int e = 0; e < 4; ++e) a[j][e] ^= 0x80008000u;
#pragma unroll
      for (int n = 0; n < kKeys / 64; ++n)
        add_columns(Z[n], a[j], ks + n * kTileBytes, j, 3, reader);
    }
  }
  for_state<kKeys>(Z, p.last, p, job, me, [](float x, float* to) { *to = x; });
}

int64_t blocks(const DeltaChunks& p) { return p.sequences.count * p.H * ((p.V + 63) / 64); }

template <int kKeys>
cudaError_t forward(const DeltaChunks& p, cudaStream_t stream) {
  const auto kernel = p.S ? forward_kernel<kKeys, false> : forward_kernel<kKeys, true>;
  return launch(kernel, blocks(p), kBlock, sizeof(Memory<kKeys>), stream, p);
}
template <int kKeys>
cudaError_t reverse(const DeltaChunks& p, cudaStream_t stream) {
  return launch(reverse_kernel<kKeys>, blocks(p), kBlock, sizeof(Memory<kKeys>), stream, p);
}

}  // namespace

cudaError_t delta_forward(const DeltaChunks& p, cudaStream_t stream) {
  return p.keys() == 64 ? forward<64>(p, stream) : forward<128>(p, stream);
}

cudaError_t delta_reverse(const DeltaChunks& p, cudaStream_t stream) {
  return p.keys() == 64 ? reverse<64>(p, stream) : reverse<128>(p, stream);
}

}  // namespace horner::cuda
