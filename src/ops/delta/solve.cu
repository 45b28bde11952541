// `delta`: what a chunk needs of its keys, queries, decays and betas alone (chunked.cuh).
//
// L = strict_lower(M * K K^T) diag(b) in blocks of 16 tokens; A = (I + L)^-1 has on and below its diagonal
//   A_JJ = (I + L_JJ)^-1 by substitution,     A_IJ = -A_II sum_{J<=K<I} L_IK A_KJ
// in fp32 and, for the second, products of operands that are sums of two bf16.
#include "cuda/launch.cuh"
#include "ops/delta/chunked.cuh"

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

// Two numbers as a sum of two pairs of bf16.
struct Split {
  uint32_t high, low;
};
__device__ Split split(float x, float y) {
  const uint32_t high = pack(x, y);
  return {high, pack(x - low_half(high), y - high_half(high))};
}

// A block of 16 x 16, transposed, as an operand a.
struct Operand {
  uint32_t high[4], low[4];
  __device__ void set(int e, float x, float y) {
    const Split two = split(x, y);
    high[e] = two.high;
    low[e] = two.low;
  }
};

// d += a B^T, of rows of B in memory: d (16 x 16) has two tiles of 8 columns.
template <int kStride>
__device__ void add_product(float (&d)[2][4], const Operand& a, const float* B, const Place& me) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float* row = B + (8 * n + me.r) * kStride + 2 * me.i;
    const Split x = split(row[0], row[1]), y = split(row[8], row[9]);
    multiply(d[n], a.high, x.high, y.high);
    multiply(d[n], a.high, x.low, y.low);
    multiply(d[n], a.low, x.high, y.high);
  }
}

// A_JJ: lane c (and c + 16) has column c, x_t = (t == c) - sum_{s<t} L_ts x_s.
template <int kKeys>
__device__ void solve_diagonal(Memory<kKeys>& m, int J, const Place& me) {
  const int c = me.lane % 16;
  float x[16];
#pragma unroll
  for (int t = 0; t < 16; ++t) {
    float sum[2] = {t == c ? 1.f : 0.f, 0.f};
#pragma unroll
    for (int s = 0; s < t; ++s) sum[s % 2] -= m.L[16 * J + t][16 * J + s] * x[s];
    x[t] = sum[0] + sum[1];
    if (me.lane < 16) {
      m.diagonal[J][t][c] = x[t];
      m.inverse[16 * J + t][16 * J + c] = __float2bfloat16(x[t]);
    }
  }
}

// A_IJ for I > J, transposed: A_IJ^T = -(sum_K A_KJ^T L_IK^T) A_II^T.
template <int kKeys>
__device__ void solve_below(Memory<kKeys>& m, int J, const Place& me) {
  for (int t = me.lane / 2; t < 16 * J; t += 16)  // above the diagonal: 0
    *reinterpret_cast<uint4*>(&m.inverse[t][16 * J + 8 * (me.lane % 2)]) = uint4{0, 0, 0, 0};
  Operand a[3];  // A_KJ^T, K = J, J + 1, ..
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int j = me.r + 8 * (e % 2), k = 2 * me.i + 8 * (e / 2);
    a[0].set(e, m.diagonal[J][k][j], m.diagonal[J][k + 1][j]);
  }
#pragma unroll
  for (int d = 1; d < 4; ++d) {
    const int I = J + d;
    if (I > 3) return;
    float x[2][4] = {}, y[2][4] = {};
#pragma unroll
    for (int n = 0; n < d; ++n) add_product<68>(x, a[n], &m.L[16 * I][16 * (J + n)], me);
    Operand sum;
#pragma unroll
    for (int e = 0; e < 4; ++e) sum.set(e, -x[e / 2][2 * (e % 2)], -x[e / 2][2 * (e % 2) + 1]);
    add_product<18>(y, sum, &m.diagonal[I][0][0], me);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float* two = y[e / 2] + 2 * (e % 2);
      if (d < 3) a[d].set(e, two[0], two[1]);
      const int t = 16 * I + 8 * (e / 2) + me.r, s = 16 * J + 8 * (e % 2) + 2 * me.i;
      *reinterpret_cast<uint32_t*>(&m.inverse[t][s]) = transposed(pack(two[0], two[1]));
    }
  }
}

// A block owns one chunk of one head; a warp 16 of its tokens, then a column of blocks of the inverse.
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

  const auto products = [&](Product& d, uint32_t rows) {  // with k, of the warp's tokens
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      uint32_t a[4];
      load_rows(a, rows, me.warp, j, reader);
      add_rows(d, a, shared_address(m.k), j, 0, reader);
    }
  };
  {
    Product L = {};
    products(L, shared_address(m.k));
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
  {
    Product P = {};
    products(P, shared_address(m.q));
    weigh(P, me.warp, false, m.G, m.b, me);
    __nv_bfloat16* rows = square(p.scores, p, slot, h) + (16 * me.warp + me.r) * 64;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) P[2 * j][e] *= p.scale, P[2 * j + 1][e] *= p.scale;
      uint32_t a[4];
      round_columns(a, P, j);
      store_sixteen(rows + 16 * j, a[0], a[2], true, 16, me);
      store_sixteen(rows + 8 * 64 + 16 * j, a[1], a[3], true, 16, me);
    }
  }
  __syncthreads();  // L is there, and q is read
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
