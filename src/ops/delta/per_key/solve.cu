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
  float totals[2][kStripes][kSlice];  // log2-decays of the stripes, of one slice and the next
  union {
    uint4 early[256];  // rows of levels 16 and 32, of one slice
    __nv_bfloat16 inverse[64][64];
  };
};

// Products of 16 rows with 16 others: element e of [n] is row r + 8 (e / 2), column 8 n + 2 i + e % 2.
using Square = float[2][4];

// Of a warp's own tokens, k with k where e < 2 and q with k where e >= 2: element e of near[h] is row r and column
// 2 i + e % 2 of the block of 8 x 8 with tokens 8 h .. on the diagonal, of eight that of the block below it.
struct OwnScores {
  float near[2][4] = {}, eight[4] = {};

  // d += rows of k, and rows of q under them, times rows of other: of tokens 8 h .. and 8 half ..
  __device__ static void multiply_both(
      float (&d)[4], const Fragment& k, const Fragment& q, int h, const Fragment& other, int half
  ) {
#pragma unroll
    for (int s = 0; s < 4; s += 2) {
      const uint32_t a[4] = {k.x[h][s], q.x[h][s], k.x[h][s + 1], q.x[h][s + 1]};
      multiply(d, a, other.x[half][s], other.x[half][s + 1]);
    }
  }
  __device__ void add(int half, const Fragment& k, const Fragment& q, const Place& me) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float d[4] = {};
      multiply_both(d, k, q, h, k, h);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = 2 * me.i + e % 2;
        near[h][e] += column < me.r && meet(me.r ^ column, half) ? d[e] : 0.f;
      }
    }
  }
  __device__ void add_eight(const Fragment& k, const Fragment& q) {
    multiply_both(eight, k, q, 1, k, 0);
  }
  __device__ void add_same(const Raw& x, const Place& me) {
    const Fragment q(x.q), k(x.k);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float d[4] = {};
      multiply_both(d, k, q, h, k, h);
#pragma unroll
      for (int e = 2; e < 4; ++e) near[h][e] += 2 * me.i + e % 2 == me.r ? d[e] : 0.f;
    }
  }
  // Of k with k (first = 0) or q with k (first = 2).
  __device__ void square(Square& x, int first) const {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      x[0][e] = near[0][first + e];
      x[0][2 + e] = eight[first + e];
      x[1][e] = 0.f;
      x[1][2 + e] = near[1][first + e];
    }
  }
};

// Its place in L: of this warp's rows and block column J. f(element of L, element of x).
template <class F>
__device__ void for_square(Memory& m, int J, const Place& me, F&& f) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      f(m.L[16 * me.warp + me.r + 8 * (e / 2)][16 * J + 8 * n + 2 * me.i + e % 2], n, e);
  }
}
// Of a warp's rows with all before them: q with k. Those of k with k are summed in L, but for the warp's own tokens.
struct Scores {
  OwnScores own;  // and of k with k
  Square from16[1] = {}, from32[2] = {};

  // Of block column J; 0 after the warp's own.
  __device__ float at(int J, int n, int e, const Place& me) const {
    if (J > me.warp) return 0.f;
    if (J == me.warp) {
      Square x;
      own.square(x, 2);
      return x[n][e];
    }
    if (J == 2 || me.warp == 1) return from16[0][n][e];
    return J == 0 ? from32[0][n][e] : from32[1][n][e];
  }
};

// Rows r and r + 8 of a slice to `all`, from element `first` on.
template <int kKeys>
__device__ void store_slice(const Fragment& m, void* all, int64_t first) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    __nv_bfloat16* row = static_cast<__nv_bfloat16*>(all) + first + 8 * h * kKeys;
    const uint4 x = {m.x[h][0], m.x[h][1], m.x[h][2], m.x[h][3]};
    __stwb(reinterpret_cast<uint4*>(row), x);  // surely one store: nvcc made four of an assignment
  }
}

__device__ void weigh_rows(Fragment& m, const uint4 (&rows)[2], const Values& factor) {
  m.set(0, rows[0], factor);
  m.set(1, rows[1], factor);
}

// Rows of q and k times the factors of the way to the chunk's start, and of k to its end, to memory.
template <int kKeys>
__device__ void store_weighed(
    const DeltaChunks& p,
    const float* totals,
    const float* beta,
    const Values& since,
    const Raw& x,
    int slice,
    const Place& me
) {
  const int64_t row = int64_t(blockIdx.x) * 64 + 16 * me.warp + me.r;
  const int64_t first = row * kKeys + kSlice * slice + 8 * me.i;
  Values factor;
  Fragment rows;
  Factors(to_start(me), totals, me).powers(factor, since);
  weigh_rows(rows, x.k, factor);
  store_slice<kKeys>(rows, p.read_k, first);
#pragma unroll
  for (int e = 0; e < 16; ++e) factor[e / 4][e % 4] *= p.scale;
  weigh_rows(rows, x.q, factor);
  store_slice<kKeys>(rows, p.read_q, first);
  Factors(to_end(me), totals, me).powers(factor, since);
  const float b[2] = {beta[16 * me.warp + me.r], beta[16 * me.warp + me.r + 8]};
#pragma unroll
  for (int e = 0; e < 16; ++e) factor[e / 4][e % 4] *= b[e / 2 % 2];
  weigh_rows(rows, x.k, factor);
  store_slice<kKeys>(rows, p.write_k, first);
}

// Levels inside a stripe: k with k, and q with k, of which only late rows count.
struct InnerRows {
  Fragment k, q;
  __device__ InnerRows(int half, const Raw& x, const Decays& d, bool narrow, const Place& me) {
    Values factor;
    level_factors(factor, half, d, x, narrow, me);
    weigh_rows(k, x.k, factor);
    weigh_rows(q, x.q, factor);
  }
};
__device__ void add_inner(
    OwnScores& own, const Raw& x, const Decays& d, bool narrow, const Place& me
) {
  own.add_same(x, me);
  const auto add = [&](int half) {
    const InnerRows rows(half, x, d, narrow, me);
    own.add(half, rows.k, rows.q, me);
  };
  add(1);
#pragma unroll 1
  for (int half = 2; half < 8; half *= 2) add(half);
  const InnerRows rows(8, x, d, narrow, me);
  own.add_eight(rows.k, rows.q);
}

// One level of whole stripes: early ones leave their rows, and after a barrier late ones multiply with them.
template <int kHalf>
__device__ void leave_rows(
    uint4* early, const float* totals, const Values& since, const Raw& x, const Place& me
) {
  Values factor;
  Fragment k;
  Factors(to_middle<kHalf>(me), totals, me).powers(factor, since);
  weigh_rows(k, x.k, factor);
  k.store(early, me.lane);
}
template <int kHalf, int kCount>
__device__ void multiply_early(
    Memory& m,
    Square (&P)[kCount],
    const uint4* early,  // of kCount stripes
    int first,           // of them
    int slice,
    const Values& since,
    const Raw& x,
    const Place& me
) {
  Values factor;
  Fragment k, q, other;
  Factors(to_middle<kHalf>(me), m.totals[slice & 1][0], me).powers(factor, since);
  weigh_rows(k, x.k, factor);
  weigh_rows(q, x.q, factor);
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    other.load(early + 64 * n, me.lane);
    Square L = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      multiply_rows(L[half], k, other, half);
      multiply_rows(P[n][half], q, other, half);
    }
    for_square(m, first + n, me, [&](float& x, int half, int e) {
      x = slice == 0 ? L[half][e] : x + L[half][e];
    });
  }
}

// L = Lh diag(b), and P to memory: blocks of 16 up to the diagonal, as the sweeps read it.
__device__ void store_scores(
    Memory& m, const Scores& P, const DeltaChunks& p, unsigned slot, const Heads& h, const Place& me
) {
  Square own;
  P.own.square(own, 0);
  for_square(m, me.warp, me, [&](float& x, int n, int e) { x = own[n][e]; });
  __nv_bfloat16* rows = square(p.scores, p, slot, h) + (16 * me.warp + me.r) * 64;
#pragma unroll
  for (int J = 0; J < 4; ++J) {
    if (J > me.warp) continue;
    Square x;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = 16 * J + 8 * n + 2 * me.i + e % 2;
        m.L[16 * me.warp + me.r + 8 * (e / 2)][column] *= m.b[column];
        x[n][e] = P.at(J, n, e, me) * m.b[column] * p.scale;
      }
    }
    uint32_t a[4];
    to_operand(a, x);
    store_sixteen(rows + 16 * J, a[0], a[2], true, 16, me);
    store_sixteen(rows + 8 * 64 + 16 * J, a[1], a[3], true, 16, me);
  }
}

// Of a row only the blocks of 16 columns up to the diagonal. A thread owns a unit of every 16th row.
__device__ __forceinline__ void store_inverse(
    const Memory& m, const DeltaChunks& p, unsigned slot, const Heads& h, const Place& me
) {
  uint4* to = reinterpret_cast<uint4*>(square(p.inverse, p, slot, h));
  const int unit = me.thread % 8;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int e = n * kBlock + me.thread;
    if (unit / 2 <= n) to[e] = reinterpret_cast<const uint4*>(m.inverse)[e];
  }
}

// A block owns one chunk of one head; a warp 16 of its tokens, then a column of blocks of the inverse.
template <int kKeys>
__global__ void __launch_bounds__(kBlock, 3)
    key_solve_kernel(const __grid_constant__ DeltaChunks p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Memory& m = *reinterpret_cast<Memory*>(memory);
  const Place me(int(threadIdx.x));
  const unsigned slot = blockIdx.x / unsigned(p.H);
  const Heads h(int(blockIdx.x % unsigned(p.H)), 1);
  const Chunk c = chunk_at(p.sequences, slot);
  if (c.rows <= 0) return;
  prefetch_slices(p, c, h, me);
  if (me.thread < 64)
    m.b[me.thread] = me.thread < c.rows ? at<float>(p.beta, c, h)[me.thread * p.beta.t] : 0.f;
  __syncthreads();

  Scores P;
#pragma unroll 1
  for (int s = 0; s < kKeys / kSlice; ++s) {
    const Place me(opaque(int(threadIdx.x)));  // keep no addresses in registers
    Raw x;
    SliceRows(p, c, h, me).load(x, p, c.rows, s, me);
    Values since;
    {
      const Decays d(x, p.narrow_g);
      add_inner(P.own, x, d, p.narrow_g, me);
      d.sum(since, up_to(me));
    }
    float total[8];
    stripe_total(total, since, me);
    float(&totals)[kStripes][kSlice] = m.totals[s & 1];
    if (me.r == 0) store_eight(totals[me.warp] + 8 * me.i, total);
    __syncthreads();
    uint4 *early16 = m.early + 64 * (me.warp / 2), *early32 = m.early + 128;
    if (!late_stripe<16>(me)) leave_rows<16>(early16, totals[0], since, x, me);
    if (!late_stripe<32>(me)) leave_rows<32>(early32 + 64 * me.warp, totals[0], since, x, me);
    store_weighed<kKeys>(p, totals[0], m.b, since, x, s, me);
    if (me.thread < kSlice) {
      float all = 0.f;
#pragma unroll
      for (int w = 0; w < kStripes; ++w) all += totals[w][me.thread];
      p.factors[int64_t(blockIdx.x) * kKeys + kSlice * s + me.thread] = exp2_fast(all);
    }
    __syncthreads();
    if (late_stripe<16>(me)) multiply_early<16>(m, P.from16, early16, me.warp - 1, s, since, x, me);
    if (late_stripe<32>(me)) multiply_early<32>(m, P.from32, early32, 0, s, since, x, me);
  }
  store_scores(m, P, p, slot, h, me);
  __syncthreads();  // L is there, and no row of a level is read any more
  solve_diagonal(m, me.warp, me);
  __syncthreads();
  solve_below(m, me.warp, me);
  __syncthreads();
  store_inverse(m, p, slot, h, me);
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
