// `delta`: A, P and the factors of a chunk, which depend only on q, k, g and beta (chunked.cuh).
#include "ops/delta/solve.cuh"

#include "cuda/launch.cuh"

namespace horner::cuda {
namespace {

constexpr int kBlock = 128;

template <int kKeys>
struct Memory {
  unsigned char k[kKeys / 64][kTileBytes];
  union {
    unsigned char q[kKeys / 64][kTileBytes];
    __nv_bfloat16 inverse[64][64];
  };
  float L[64][68];
  float diagonal[4][16][18];  // A_JJ
  float G[64], b[64];
};

// M_ts x_ts b_s, for s <= t or s < t.
__device__ void weigh(
    Product& x, int stripe, bool strict, const float* G, const float* b, const Place& me
) {
  const float late[2] = {G[16 * stripe + me.r], G[16 * stripe + me.r + 8]};
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int t = 16 * stripe + me.r + 8 * (e / 2), s = 8 * n + 2 * me.i + e % 2;
      const bool there = strict ? s < t : s <= t;
      x[n][e] = there ? x[n][e] * exp2_fast(late[e / 2] - G[s]) * b[s] : 0.f;
    }
  }
}

// d = rows of the warp's tokens times k^T.
template <int kKeys>
__device__ __forceinline__ void multiply_keys(
    Product& d, uint32_t rows, const Memory<kKeys>& m, const Reader& reader, const Place& me
) {
#pragma unroll
  for (int j = 0; j < kKeys / 16; ++j) {
    uint32_t a[4];
    load_rows(a, rows, me.warp, j, reader);
    add_rows(d, a, shared_address(m.k), j, 0, reader);
  }
}

// L_ts = M_ts k_t.k_s b_s, s < t, to shared memory.
template <int kKeys>
__device__ __forceinline__ void compute_L(Memory<kKeys>& m, const Reader& reader, const Place& me) {
  Product L = {};
  multiply_keys(L, shared_address(m.k), m, reader, me);
  weigh(L, me.warp, true, m.G, m.b, me);
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<float2*>(&m.L[16 * me.warp + me.r + 8 * half][8 * n + 2 * me.i]) = {
          L[n][2 * half], L[n][2 * half + 1]};
    }
  }
}

// P_ts = scale M_ts q_t.k_s b_s, s <= t, to memory.
template <int kKeys>
__device__ __forceinline__ void store_scores(
    __nv_bfloat16* to, float scale, Memory<kKeys>& m, const Reader& reader, const Place& me
) {
  Product P = {};
  multiply_keys(P, shared_address(m.q), m, reader, me);
  weigh(P, me.warp, false, m.G, m.b, me);
  __nv_bfloat16* rows = to + (16 * me.warp + me.r) * 64;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) P[2 * j][e] *= scale, P[2 * j + 1][e] *= scale;
    uint32_t a[4];
    round_columns(a, P, j);
    store_sixteen(rows + 16 * j, a[0], a[2], true, 16, me);
    store_sixteen(rows + 8 * 64 + 16 * j, a[1], a[3], true, 16, me);
  }
}

// A block owns one chunk of one head. A warp owns 16 of its tokens, then a column of blocks of the inverse.
template <int kKeys>
__global__ void __launch_bounds__(kBlock, 4) solve_kernel(const __grid_constant__ DeltaChunks p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Memory<kKeys>& m = *reinterpret_cast<Memory<kKeys>*>(memory);
  const Place me(int(threadIdx.x));
  const Reader reader(me);
  const unsigned slot = blockIdx.x / unsigned(p.H);
  const Heads h(int(blockIdx.x % unsigned(p.H)), 1);
  const Chunk c = chunk_at(p.sequences, slot);
  if (c.rows <= 0) return;
  load_chunk<kKeys / 64, kBlock>(shared_address(m.k), p.k, c, h, 0, p.K, me);
  load_chunk<kKeys / 64, kBlock>(shared_address(m.q), p.q, c, h, 0, p.K, me);
  copy_commit();
  if (me.warp == 0) {
    const Numbers x = load_numbers(p, c, h, me);
    const Since d = sum_decays(x.g, me);
    reinterpret_cast<float2*>(m.G)[me.lane] = d.G;
    reinterpret_cast<float2*>(m.b)[me.lane] = x.b;
    float2* factors = reinterpret_cast<float2*>(p.factors + (int64_t(slot) * p.H + h.own) * 128);
    factors[me.lane] = {exp2_fast(d.G.x), exp2_fast(d.G.y)};
    factors[32 + me.lane] = {x.b.x * exp2_fast(d.all - d.G.x), x.b.y * exp2_fast(d.all - d.G.y)};
  }
  copy_wait<0>();
  __syncthreads();

  compute_L(m, reader, me);
  store_scores(square(p.scores, p, slot, h), p.scale, m, reader, me);
  __syncthreads();  // L is complete, and q has been read
  solve_diagonal(m, me.warp, me);
  __syncthreads();
  solve_below(m, me.warp, me);
  __syncthreads();
  uint4* to = reinterpret_cast<uint4*>(square(p.inverse, p, slot, h));
  for (int e = me.thread; e < 64 * 8; e += kBlock)
    to[e] = reinterpret_cast<const uint4*>(m.inverse)[e];
}

template <int kKeys>
cudaError_t run(const DeltaChunks& p, cudaStream_t stream) {
  const int64_t blocks = p.sequences.slots() * p.H;
  return launch(solve_kernel<kKeys>, blocks, kBlock, sizeof(Memory<kKeys>), stream, p);
}

}  // namespace

cudaError_t delta_solve(const DeltaChunks& p, cudaStream_t stream) {
  return p.keys() == 64 ? run<64>(p, stream) : run<128>(p, stream);
}

}  // namespace horner::cuda
