// `delta`: the two sweeps over time, forward and reverse (chunked.cuh). With a decay per key (per_key/per_key.cuh) q and k
// come with their factors, those of k for reading and for writing apart.
#include "cuda/launch.cuh"
#include "ops/delta/per_key/per_key.cuh"

namespace horner::cuda {
namespace {

constexpr int kBlock = 128;  // four warps of 16 value columns

// Tiles of a chunk. Those of q are not there in a sweep for E and S: then more blocks fit on a multiprocessor.
template <int kKeys, bool kQueries>
struct QueryTiles {
  unsigned char q[kKeys / 64][kTileBytes], scores[kTileBytes];
};
template <int kKeys>
struct QueryTiles<kKeys, false> {};
template <int kKeys, bool kPerKey>
struct WrittenTiles {
  unsigned char written[kKeys / 64][kTileBytes];  // Kw
};
template <int kKeys>
struct WrittenTiles<kKeys, false> {};
template <int kKeys, bool kQueries, bool kPerKey>
struct Stage : QueryTiles<kKeys, kQueries>, WrittenTiles<kKeys, kPerKey> {
  unsigned char k[kKeys / 64][kTileBytes];
  unsigned char v[kTileBytes];  // or do, in reverse: the block's 64 columns
  unsigned char inverse[kTileBytes];
};
// e^G, b e^{G_C-G}; the last e^G is e^{G_C}. Per key: e^{G_C}.
template <int kKeys, bool kPerKey>
struct TokenFactors {
  float read[64], write[64];
};
template <int kKeys>
struct TokenFactors<kKeys, true> {
  float kept[kKeys];
};
template <int kKeys, bool kQueries, bool kPerKey>
struct Memory {
  Stage<kKeys, kQueries, kPerKey> stage[2];
  TokenFactors<kKeys, kPerKey> factors[2];
};

// Dynamic memory begins at a multiple of 1024 bytes, which the tiles want: with room to align it, two blocks would not
// fit on a multiprocessor.
template <class Memory>
__device__ Memory& memory() {
  extern __shared__ __align__(1024) unsigned char dynamic[];
  if (shared_address(dynamic) % 1024 != 0) __trap();
  return *reinterpret_cast<Memory*>(dynamic);
}

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

// A lower triangle (64,64): of a row the blocks of 16 columns up to the diagonal, zeros after them.
__device__ void load_triangle(uint32_t to, const void* from, const Place& me) {
  const int row = me.thread / 8, unit = me.thread % 8;
  const unsigned char* first = static_cast<const unsigned char*>(from) + me.thread * 16;
  to += tile_offset(row, unit);
#pragma unroll
  for (int n = 0; n < 4; ++n) copy_async(to + n * 16 * 128, first + n * kBlock * 16, unit / 2 <= n);
}

template <int kKeys, bool kQueries, bool kPerKey>
__device__ void load_stage(
    Memory<kKeys, kQueries, kPerKey>& m,
    int slot_of,
    const DeltaChunks& p,
    const Rows& values,
    const Job& job,
    int i,
    const Place& me
) {
  Stage<kKeys, kQueries, kPerKey>& s = m.stage[slot_of];
  const Chunk c = chunk_at(job.span, i);
  const int64_t slot = job.span.slot + i;
  const auto load_keys = [&](const auto& tiles, const Rows& x, const void* weighed) {
    if constexpr (kPerKey) {
      const int64_t tile = (slot * p.H + job.h.own) * 64 * kKeys;
      const auto* from = static_cast<const __nv_bfloat16*>(weighed) + tile;
      load_matrix<kKeys / 64, 64, kBlock>(shared_address(tiles), from, me);
    } else {
      load_chunk<kKeys / 64, kBlock>(shared_address(tiles), x, c, job.h, 0, p.K, me);
    }
  };
  load_keys(s.k, p.k, p.read_k);
  load_chunk<1, kBlock>(shared_address(s.v), values, c, job.h, job.first, p.V, me);
  load_triangle(shared_address(s.inverse), square(p.inverse, p, slot, job.h), me);
  constexpr int kFactors = kPerKey ? kKeys : 128;
  const float* factors = p.factors + (slot * p.H + job.h.own) * kFactors;
  if (me.thread < kFactors / 4)
    copy_async(shared_address(&m.factors[slot_of]) + 16 * me.thread, factors + 4 * me.thread, true);
  if constexpr (kPerKey) load_keys(s.written, p.k, p.write_k);
  if constexpr (kQueries) {
    load_keys(s.q, p.q, p.read_q);
    load_triangle(shared_address(s.scores), square(p.scores, p, slot, job.h), me);
  }
}

// The bf16 state to memory; per key in the order of per_key.cuh, by four registers at once: this comes before the
// products, which want the registers of their operands in another order.
template <int kKeys, bool kPerKey>
__device__ void store_state(
    void* all,
    const uint32_t (&a)[kKeys / 16][4],
    const DeltaChunks& p,
    const Job& job,
    int i,
    const Place& me
) {
  const int64_t head = (job.span.slot + i) * p.H + job.h.own;
  const int64_t row = head * (p.V <= 64 ? 64 : 128) + job.column + me.r;
  __nv_bfloat16* to = static_cast<__nv_bfloat16*>(all) + row * kKeys;
  if constexpr (kPerKey) {
#pragma unroll
    for (int j = 0; j < kKeys / 16; j += 2) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<uint4*>(to + 8 * h * kKeys + 16 * j + 8 * me.i) = {
            a[j][h], a[j][2 + h], a[j + 1][h], a[j + 1][2 + h]};
      }
    }
  } else {
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      store_sixteen(to + 16 * j, a[j][0], a[j][2], true, 16, me);
      store_sixteen(to + 8 * kKeys + 16 * j, a[j][1], a[j][3], true, 16, me);
    }
  }
}

template <int kKeys>
__device__ void keep(Transposed<kKeys>& S, const TokenFactors<kKeys, false>& f, const Place&) {
#pragma unroll
  for (int e = 0; e < kKeys / 2; ++e) S[e / 32][e / 4 % 8][e % 4] *= f.read[63];
}
template <int kKeys>
__device__ void keep(Transposed<kKeys>& S, const TokenFactors<kKeys, true>& f, const Place& me) {
#pragma unroll
  for (int n = 0; n < kKeys / 64; ++n) weigh_columns(S[n], f.kept + 64 * n, me);
}

// The copies of this thread have arrived; after the barrier, those of all have.
__device__ void wait_copies() {
  copy_wait<0>();
  show_tiles();
  __syncthreads();
}

__device__ void round_all(uint32_t (&a)[4][4], const Product& d) {
#pragma unroll
  for (int j = 0; j < 4; ++j) round_columns(a[j], d, j);
}

// The state, rounded, as operands; and to memory, where it is wanted.
template <int kKeys>
__device__ void round_state(uint32_t (&a)[kKeys / 16][4], const Transposed<kKeys>& S) {
#pragma unroll
  for (int j = 0; j < kKeys / 16; ++j) round_columns(a[j], S[j / 4], j % 4);
}

// E = v - E, from K S decayed to each token.
__device__ __forceinline__ void subtract_from(Product& E, const uint32_t (&v)[4][4]) {
#pragma unroll
  for (int e = 0; e < 16; ++e) {
    float* two = E[e / 2] + 2 * (e % 2);
    two[0] = low_half(v[e / 4][e % 4]) - two[0];
    two[1] = high_half(v[e / 4][e % 4]) - two[1];
  }
}

template <int kKeys>
__device__ __forceinline__ void fence_state(Transposed<kKeys>& S) {
#pragma unroll
  for (int n = 0; n < kKeys / 64; ++n) fence_product(S[n]);
}

// S += x^T rows, for each 64 keys of the rows.
template <int kKeys>
__device__ __forceinline__ void add_columns(
    Transposed<kKeys>& S, const uint32_t (&rows)[4][4], uint32_t x, const Reader& reader
) {
#pragma unroll
  for (int n = 0; n < kKeys / 64; ++n)
    multiply_columns<true>(S[n], rows, x + n * kTileBytes, false, reader);
}

// E = A (V - e^G K S), from K S; meanwhile S is decayed to the chunk's end. Also waits for O. a: scratch.
template <int kKeys, bool kQueries, bool kPerKey>
__device__ __forceinline__ void solve_errors(
    Product& E,
    Product& O,
    Transposed<kKeys>& S,
    uint32_t (&a)[4][4],
    const Stage<kKeys, kQueries, kPerKey>& s,
    const TokenFactors<kKeys, kPerKey>& f,
    const Reader& reader,
    const Place& me
) {
#pragma unroll
  for (int j = 0; j < 4; ++j) load_columns(a[j], shared_address(s.v), me.warp, j, reader);
  wait_products<1>();
  fence_product(E);
  if constexpr (!kPerKey) weigh_columns(E, f.read, me);
  subtract_from(E, a);  // V - e^G K S
  round_all(a, E);
  begin_products();
  multiply_rows<false>(E, a, shared_address(s.inverse), true, reader);
  commit_products();
  keep<kKeys>(S, f, me);
  wait_products<0>();
  fence_product(E);
  fence_product(O);
}

// Chunk i: E = A (V - e^G K S), o or the state that enters, S'. kQueries: o is wanted; else E and the states are.
template <int kKeys, bool kQueries, bool kPerKey>
__device__ __forceinline__ void forward_chunk(
    Transposed<kKeys>& S,
    const Stage<kKeys, kQueries, kPerKey>& s,
    const TokenFactors<kKeys, kPerKey>& f,
    const DeltaChunks& p,
    const Job& job,
    int i,
    const Reader& reader,
    const Place& me
) {
  const Chunk c = chunk_at(job.span, i);
  const uint32_t ks = shared_address(s.k);
  Product E, O;
  uint32_t state[kKeys / 16][4], a[4][4];
  round_state<kKeys>(state, S);
  if constexpr (!kQueries && kPerKey) store_state<kKeys, kPerKey>(p.S, state, p, job, i, me);
  begin_products();
  multiply_rows<false>(E, state, ks, false, reader);  // K S
  commit_products();
  if constexpr (kQueries)
    multiply_rows<false>(O, state, shared_address(s.q), false, reader);  // Q S
  commit_products();
  if constexpr (!kQueries && !kPerKey) store_state<kKeys, kPerKey>(p.S, state, p, job, i, me);
  solve_errors<kKeys, kQueries, kPerKey>(E, O, S, a, s, f, reader, me);
  uint32_t weighed[4][4];
  round_all(a, E);
  if constexpr (!kPerKey) {
    weigh_columns(E, f.write, me);
    round_all(weighed, E);
  }
  if constexpr (kQueries && !kPerKey) {
    weigh_columns(O, f.read, me);
#pragma unroll
    for (int e = 0; e < 32; ++e) O[e / 4][e % 4] *= p.scale;
  }
  begin_products();
  if constexpr (kQueries) multiply_rows<true>(O, a, shared_address(s.scores), true, reader);
  commit_products();
  if constexpr (kPerKey)  // S' = e^{G_C} S + K^T diag(b e^{G_C-G}) E
    add_columns<kKeys>(S, a, shared_address(s.written), reader);
  else
    add_columns<kKeys>(S, weighed, ks, reader);
  commit_products();
  if constexpr (kQueries) {
    wait_products<1>();
    fence_product(O);
    uint32_t(&free)[4][4] = kPerKey ? weighed : a;  // the other one is still read
    round_all(free, O);
    store_tokens(free, p.out, c, job.h, job.column, p.V, me);
  } else {
    store_tokens(a, p.error, c, job.h, job.column, p.V, me);
  }
  wait_products<0>();
  fence_state<kKeys>(S);
}

template <int kKeys, bool kQueries, bool kPerKey>
__global__ void __launch_bounds__(kBlock, 2) forward_kernel(const __grid_constant__ DeltaChunks p) {
  auto& m = memory<Memory<kKeys, kQueries, kPerKey>>();
  const Place start(int(threadIdx.x));
  const Job job(p, start);
  Transposed<kKeys> S = {};
  for_state<kKeys>(S, p.first, p, job, start, [](float& x, const float* from) { x = *from; });
  if (job.chunks > 0) load_stage<kKeys, kQueries, kPerKey>(m, 0, p, p.v, job, 0, start);
  copy_commit();
  for (int i = 0; i < job.chunks; ++i) {
    const Place me(opaque(int(threadIdx.x)));  // keep no addresses in registers
    const Reader reader(me);
    wait_copies();
    if (i + 1 < job.chunks)
      load_stage<kKeys, kQueries, kPerKey>(m, (i + 1) & 1, p, p.v, job, i + 1, me);
    copy_commit();
    forward_chunk<kKeys, kQueries, kPerKey>(
        S, m.stage[i & 1], m.factors[i & 1], p, job, i, reader, me
    );
  }
  for_state<kKeys>(S, p.last, p, job, start, [](float x, float* to) { *to = x; });
}

// Bf16 pairs over tokens times a factor per token.
__device__ uint32_t weigh_pair(uint32_t two, float2 f) {
  return pack(low_half(two) * f.x, high_half(two) * f.y);
}

// dO as operands: a, and weighed = scale e^G dO.
template <int kKeys, bool kPerKey>
__device__ __forceinline__ void load_gradient(
    uint32_t (&a)[4][4],
    uint32_t (&weighed)[4][4],
    uint32_t rows,
    const TokenFactors<kKeys, kPerKey>& f,
    float scale,
    const Reader& reader,
    const Place& me
) {
#pragma unroll
  for (int e = 0; e < 16; ++e) {
    const int j = e / 4, t = 16 * j + 8 * (e % 4 / 2) + 2 * me.i;
    if (e % 4 == 0) load_columns(a[j], rows, me.warp, j, reader);
    if constexpr (!kPerKey) {
      const float2 two = *reinterpret_cast<const float2*>(f.read + t);
      weighed[j][e % 4] = weigh_pair(a[j][e % 4], {two.x * scale, two.y * scale});
    }
  }
}

// Chunk i: dV = A^T (e^{G_C-G} K Z + P^T dO), the gradient Z of the state that leaves the chunk, Z of the chunk before.
template <int kKeys, bool kPerKey>
__device__ __forceinline__ void reverse_chunk(
    Transposed<kKeys>& Z,
    const Stage<kKeys, true, kPerKey>& s,
    const TokenFactors<kKeys, kPerKey>& f,
    const DeltaChunks& p,
    const Job& job,
    int i,
    const Reader& reader,
    const Place& me
) {
  const Chunk c = chunk_at(job.span, i);
  const uint32_t ks = shared_address(s.k), qs = shared_address(s.q);
  Product d;
  uint32_t state[kKeys / 16][4], a[4][4], weighed[4][4];
  round_state<kKeys>(state, Z);
  if constexpr (kPerKey) store_state<kKeys, kPerKey>(p.Z, state, p, job, i, me);
  load_gradient<kKeys, kPerKey>(a, weighed, shared_address(s.v), f, p.scale, reader, me);
  keep<kKeys>(Z, f, me);
  begin_products();
  if constexpr (kPerKey)
    multiply_rows<false>(d, state, shared_address(s.written), false, reader);  // Kw Z
  else
    multiply_rows<false>(d, state, ks, false, reader);  // K Z
  commit_products();
  add_columns<kKeys>(Z, kPerKey ? a : weighed, qs, reader);  // Z += Q^T diag(scale e^G) dO
  commit_products();
  if constexpr (!kPerKey) store_state<kKeys, kPerKey>(p.Z, state, p, job, i, me);
  wait_products<1>();
  fence_product(d);
  if constexpr (!kPerKey) weigh_columns(d, f.write, me);
  begin_products();
  multiply_columns<true>(d, a, shared_address(s.scores), true, reader);  // + P^T dO
  commit_products();
  wait_products<0>();
  fence_product(d);
  fence_state<kKeys>(Z);
  round_all(a, d);
  begin_products();
  multiply_columns<false>(d, a, shared_address(s.inverse), true, reader);  // dV = A^T (..)
  commit_products();
  wait_products<0>();
  fence_product(d);
  round_all(a, d);
  if constexpr (!kPerKey) weigh_columns(d, f.read, me);
  round_all(weighed, d);
#pragma unroll
  for (int e = 0; e < 16; ++e) weighed[e / 4][e % 4] ^= 0x80008000u;
  begin_products();
  add_columns<kKeys>(Z, weighed, ks, reader);  // Z -= K^T diag(e^G) dV
  commit_products();
  store_tokens(a, p.dv, c, job.h, job.column, p.V, me);
  wait_products<0>();
  fence_state<kKeys>(Z);
}

template <int kKeys, bool kPerKey>
__global__ void __launch_bounds__(kBlock, 2) reverse_kernel(const __grid_constant__ DeltaChunks p) {
  auto& m = memory<Memory<kKeys, true, kPerKey>>();
  const Place start(int(threadIdx.x));
  const Job job(p, start);
  Transposed<kKeys> Z = {};
  for_state<kKeys>(Z, p.first, p, job, start, [](float& x, const float* from) { x = *from; });
  if (job.chunks > 0) load_stage<kKeys, true, kPerKey>(m, 0, p, p.out, job, job.chunks - 1, start);
  copy_commit();
  for (int i = job.chunks - 1; i >= 0; --i) {
    const Place me(opaque(int(threadIdx.x)));
    const Reader reader(me);
    const int slot = (job.chunks - 1 - i) & 1;
    wait_copies();
    if (i > 0) load_stage<kKeys, true, kPerKey>(m, slot ^ 1, p, p.out, job, i - 1, me);
    copy_commit();
    reverse_chunk<kKeys, kPerKey>(Z, m.stage[slot], m.factors[slot], p, job, i, reader, me);
  }
  for_state<kKeys>(Z, p.last, p, job, start, [](float x, float* to) { *to = x; });
}

int64_t blocks(const DeltaChunks& p) { return p.sequences.count * p.H * ((p.V + 63) / 64); }

template <int kKeys, bool kQueries, bool kPerKey>
cudaError_t forward(const DeltaChunks& p, cudaStream_t stream) {
  const size_t bytes = sizeof(Memory<kKeys, kQueries, kPerKey>);
  return launch(forward_kernel<kKeys, kQueries, kPerKey>, blocks(p), kBlock, bytes, stream, p);
}
template <int kKeys, bool kPerKey>
cudaError_t forward(const DeltaChunks& p, cudaStream_t stream) {
  return p.S ? forward<kKeys, false, kPerKey>(p, stream) : forward<kKeys, true, kPerKey>(p, stream);
}
template <int kKeys, bool kPerKey>
cudaError_t reverse(const DeltaChunks& p, cudaStream_t stream) {
  const size_t bytes = sizeof(Memory<kKeys, true, kPerKey>);
  return launch(reverse_kernel<kKeys, kPerKey>, blocks(p), kBlock, bytes, stream, p);
}

}  // namespace

cudaError_t delta_forward(const DeltaChunks& p, cudaStream_t stream) {
  if (p.per_key)
    return p.keys() == 64 ? forward<64, true>(p, stream) : forward<128, true>(p, stream);
  return p.keys() == 64 ? forward<64, false>(p, stream) : forward<128, false>(p, stream);
}

cudaError_t delta_reverse(const DeltaChunks& p, cudaStream_t stream) {
  if (p.per_key)
    return p.keys() == 64 ? reverse<64, true>(p, stream) : reverse<128, true>(p, stream);
  return p.keys() == 64 ? reverse<64, false>(p, stream) : reverse<128, false>(p, stream);
}

}  // namespace horner::cuda
