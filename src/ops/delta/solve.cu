// `delta`: what a chunk needs of its keys, queries, decays and betas alone (chunked.cuh).
#include "cuda/launch.cuh"
#include "ops/delta/chunked.cuh"

namespace horner::cuda {
namespace {

constexpr int kBlock = 128;

template <int kKeys>
struct Memory {
  unsigned char k[kKeys / 64][kTileBytes], q[kKeys / 64][kTileBytes];
  float L[64][68];  // strict_lower(M * K K^T) diag(b)
  __nv_bfloat16 inverse[64][64];
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

// A column of (I + L)^-1, by forward substitution: x_t = (t == c) - sum_{s<t} L_ts x_s.
__device__ void solve_column(const float (&L)[64][68], __nv_bfloat16 (&inverse)[64][64], int c) {
  float x[64];
#pragma unroll
  for (int t = 0; t < 64; ++t) {
    float sum[4] = {t == c ? 1.f : 0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int s = 0; s < t; s += 4) {  // L is 0 from s = t on
      const float4 l = *reinterpret_cast<const float4*>(&L[t][s]);
      sum[0] -= l.x * x[s];
      if (s + 1 < t) sum[1] -= l.y * x[s + 1];
      if (s + 2 < t) sum[2] -= l.z * x[s + 2];
      if (s + 3 < t) sum[3] -= l.w * x[s + 3];
    }
    x[t] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    inverse[t][c] = __float2bfloat16(x[t]);
  }
}

// A block owns one chunk of one head. Warps 0 and 1 solve, a thread per column, while warps 2 and 3 make the scores.
template <int kKeys, bool kScores>
__global__ void __launch_bounds__(kBlock) solve_kernel(const __grid_constant__ DeltaChunks p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Memory<kKeys>& m = *reinterpret_cast<Memory<kKeys>*>(memory);
  const Place me(int(threadIdx.x));
  const Reader reader(me);
  const unsigned slot = blockIdx.x / unsigned(p.H);
  const Heads h(int(blockIdx.x % unsigned(p.H)), 1);
  const Chunk c = chunk_at(p.sequences, slot);
  if (c.rows <= 0) return;
  load_chunk<kKeys / 64, kBlock>(shared_address(m.k), p.k, c, h, 0, p.K, me);
  if (kScores) load_chunk<kKeys / 64, kBlock>(shared_address(m.q), p.q, c, h, 0, p.K, me);
  copy_commit();
  if (me.warp == 0) {
    const Numbers x = load_numbers(p, c, h, me);
    reinterpret_cast<float2*>(m.G)[me.lane] = sum_decays(x.g, me).G;
    reinterpret_cast<float2*>(m.b)[me.lane] = x.b;
  }
  copy_wait<0>();
  __syncthreads();

  const auto products = [&](Product& d, uint32_t rows, int stripe) {  // with k, of one stripe
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      uint32_t a[4];
      load_rows(a, rows, stripe, j, reader);
      add_rows(d, a, shared_address(m.k), j, 0, reader);
    }
  };
  {
    Product L = {};
    products(L, shared_address(m.k), me.warp);
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
  __syncthreads();
  if (me.warp < 2) {
    solve_column(m.L, m.inverse, me.thread);
  } else if (kScores) {
#pragma unroll 1
    for (int stripe = 2 * (me.warp - 2); stripe < 2 * (me.warp - 1); ++stripe) {
      Product P = {};
      products(P, shared_address(m.q), stripe);
      weigh(P, stripe, false, m.G, m.b, me);
      __nv_bfloat16* rows = square(p.scores, p, slot, h) + (16 * stripe + me.r) * 64;
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
  }
  __syncthreads();
  uint4* to = reinterpret_cast<uint4*>(square(p.inverse, p, slot, h));
  for (int e = me.thread; e < 64 * 8; e += kBlock)
    to[e] = reinterpret_cast<const uint4*>(m.inverse)[e];
}

template <int kKeys>
cudaError_t run(const DeltaChunks& p, cudaStream_t stream) {
  const auto kernel = p.scores ? solve_kernel<kKeys, true> : solve_kernel<kKeys, false>;
  return launch(kernel, p.sequences.slots() * p.H, kBlock, sizeof(Memory<kKeys>), stream, p);
}

}  // namespace

cudaError_t delta_solve(const DeltaChunks& p, cudaStream_t stream) {
  return p.keys() == 64 ? run<64>(p, stream) : run<128>(p, stream);
}

}  // namespace horner::cuda
