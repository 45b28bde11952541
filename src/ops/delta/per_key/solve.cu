// `delta` with a decay per key: what a chunk needs of its keys, queries, decays and betas alone (per_key.cuh).
#include "ops/delta/solve.cuh"

#include "cuda/launch.cuh"
#include "ops/delta/per_key/per_key.cuh"

namespace horner::cuda {
namespace {

constexpr int kBlock = 128;

struct Memory {
  float L[64][68];
  float diagonal[4][16][18];  // A_JJ
  float b[64];
  float totals[kStripes][kSlice];  // log2-decays of the stripes, of one slice
  union {
    uint4 early[256];  // rows of levels 16 and 32, of one slice
    __nv_bfloat16 inverse[64][64];
  };
};

// Products of the rows of a warp with all rows before: 16 x 16 each, element e of [n] is row r + 8 (e / 2), column
// 8 n + 2 i + e % 2.
using Square = float[2][4];
struct Scores {
  InnerScores<false> inner;
  Square from16 = {}, from32[2] = {};

  // Of block column J; 0 after the warp's own.
  __device__ float at(int J, int n, int e, const Place& me) const {
    if (J > me.warp) return 0.f;
    if (J == me.warp) {
      const float low = e < 2 ? inner.near[e] : inner.eight[e];
      return n == 0 ? low : e < 2 ? 0.f : inner.near[e];
    }
    if (J == 2 || me.warp == 1) return from16[n][e];
    return J == 0 ? from32[0][n][e] : from32[1][n][e];
  }
};

// Rows r and r + 8 of a slice, where key 8 i + 2 j + e has place 8 j + 2 i + e.
template <int kKeys>
__device__ void store_slice(const Fragment& m, __nv_bfloat16* tile, int slice, const Place& me) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    __nv_bfloat16* row = tile + (16 * me.warp + me.r + 8 * h) * kKeys + kSlice * slice + 2 * me.i;
#pragma unroll
    for (int j = 0; j < 4; ++j) *reinterpret_cast<uint32_t*>(row + 8 * j) = m.x[h][j];
  }
}

// Rows of q and k times the factors of the way to the chunk's start, and of k to its end, to memory.
template <int kKeys>
__device__ void store_weighed(
    const DeltaChunks& p,
    int64_t tile,
    const Memory& m,
    const Values& since,
    const Raw& x,
    int slice,
    const Place& me
) {
  const auto to = [&](void* all) { return static_cast<__nv_bfloat16*>(all) + tile * 64 * kKeys; };
  Values factor;
  Fragment rows;
  Factors(to_start(me), m.totals[0], me).powers(factor, since);
  rows.set(0, x.k[0], factor);
  rows.set(1, x.k[1], factor);
  store_slice<kKeys>(rows, to(p.read_k), slice, me);
#pragma unroll
  for (int e = 0; e < 16; ++e) factor[e / 4][e % 4] *= p.scale;
  rows.set(0, x.q[0], factor);
  rows.set(1, x.q[1], factor);
  store_slice<kKeys>(rows, to(p.read_q), slice, me);
  Factors(to_end(me), m.totals[0], me).powers(factor, since);
  const float b[2] = {m.b[16 * me.warp + me.r], m.b[16 * me.warp + me.r + 8]};
#pragma unroll
  for (int e = 0; e < 16; ++e) factor[e / 4][e % 4] *= b[e / 2 % 2];
  rows.set(0, x.k[0], factor);
  rows.set(1, x.k[1], factor);
  store_slice<kKeys>(rows, to(p.write_k), slice, me);
}

// Levels inside a stripe: k with k, and q with k.
__device__ void add_inner(
    Scores& L, Scores& P, const Raw& x, const Decays& d, bool narrow, const Place& me
) {
  Values factor;
  Fragment k, q;
  P.inner.add_same(x, me);
#pragma unroll
  for (int half = 1; half <= 8; half *= 2) {
    level_factors(factor, half, d, x, narrow, me);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      k.set(h, x.k[h], factor);
      q.set(h, x.q[h], factor);  // only late rows of it count
    }
    if (half < 8) {
      L.inner.add(half, k, k, me);
      P.inner.add(half, q, k, me);
    } else {
      L.inner.add_eight(k, k);
      P.inner.add_eight(q, k);
    }
  }
}

// One level of whole stripes: early ones leave their rows, late ones multiply with them after the barrier.
template <int kHalf>
__device__ void outer_rows(
    Fragment& k, Fragment& q, const Memory& m, const Values& since, const Raw& x, const Place& me
) {
  Values factor;
  Factors(to_middle<kHalf>(me), m.totals[0], me).powers(factor, since);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    k.set(h, x.k[h], factor);
    q.set(h, x.q[h], factor);
  }
}
__device__ void multiply_early(
    Square& L, Square& P, const Fragment& k, const Fragment& q, const uint4* early, const Place& me
) {
  Fragment other;
  other.load(early, me.lane);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    multiply_rows(L[n], k, other, n);
    multiply_rows(P[n], q, other, n);
  }
}

// A block owns one chunk of one head; a warp 16 of its tokens, then a column of blocks of the inverse.
template <int kKeys>
__global__ void __launch_bounds__(kBlock, 2)
    key_solve_kernel(const __grid_constant__ DeltaChunks p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Memory& m = *reinterpret_cast<Memory*>(memory);
  const Place me(int(threadIdx.x));
  const unsigned slot = blockIdx.x / unsigned(p.H);
  const Heads h(int(blockIdx.x % unsigned(p.H)), 1);
  const Chunk c = chunk_at(p.sequences, slot);
  if (c.rows <= 0) return;
  const int64_t tile = int64_t(slot) * p.H + h.own;
  prefetch_slices(p, c, h, me);
  if (me.thread < 64)
    m.b[me.thread] = me.thread < c.rows ? at<float>(p.beta, c, h)[me.thread * p.beta.t] : 0.f;
  __syncthreads();

  Scores L, P;
#pragma unroll 1
  for (int s = 0; s < kKeys / kSlice; ++s) {
    Raw x;
    SliceRows(p, c, h, me).load(x, p, c.rows, s, me);
    Values since;
    {
      const Decays d(x, p.narrow_g);
      add_inner(L, P, x, d, p.narrow_g, me);
      d.sum(since, up_to(me));
    }
    float total[8];
    stripe_total(total, since, me);
    if (me.r == 0) store_eight(m.totals[me.warp] + 8 * me.i, total);
    __syncthreads();
    Fragment k16, q16, k32, q32;
    outer_rows<16>(k16, q16, m, since, x, me);
    outer_rows<32>(k32, q32, m, since, x, me);
    if (!late_stripe<16>(me)) k16.store(m.early + 64 * (me.warp / 2), me.lane);
    if (!late_stripe<32>(me)) k32.store(m.early + 128 + 64 * me.warp, me.lane);
    store_weighed<kKeys>(p, tile, m, since, x, s, me);
    if (me.thread < kSlice) {
      float all = 0.f;
#pragma unroll
      for (int w = 0; w < kStripes; ++w) all += m.totals[w][me.thread];
      p.factors[tile * kKeys + place_of_key(kSlice * s + me.thread)] = exp2_fast(all);
    }
    __syncthreads();
    if (late_stripe<16>(me))
      multiply_early(L.from16, P.from16, k16, q16, m.early + 64 * (me.warp / 2), me);
    if (late_stripe<32>(me)) {
#pragma unroll
      for (int n = 0; n < 2; ++n)
        multiply_early(L.from32[n], P.from32[n], k32, q32, m.early + 128 + 64 * n, me);
    }
  }
  __nv_bfloat16* rows = square(p.scores, p, slot, h) + (16 * me.warp + me.r) * 64;
#pragma unroll
  for (int J = 0; J < 4; ++J) {
    Square x;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = 16 * J + 8 * n + 2 * me.i + e % 2;
        m.L[16 * me.warp + me.r + 8 * (e / 2)][column] = L.at(J, n, e, me) * m.b[column];
        x[n][e] = P.at(J, n, e, me) * m.b[column] * p.scale;
      }
    }
    uint32_t a[4];
    to_operand(a, x);
    store_sixteen(rows + 16 * J, a[0], a[2], true, 16, me);
    store_sixteen(rows + 8 * 64 + 16 * J, a[1], a[3], true, 16, me);
  }
  __syncthreads();  // L is there, and no row of a level is read any more
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
  return launch(key_solve_kernel<kKeys>, blocks, kBlock, sizeof(Memory), stream, p);
}

}  // namespace

cudaError_t delta_key_solve(const DeltaChunks& p, cudaStream_t stream) {
  return p.keys() == 64 ? run<64>(p, stream) : run<128>(p, stream);
}

}  // namespace horner::cuda
