// `linear`, level 2: the warpgroup that carries the state of a sweep.
#pragma once

#include "ops/linear/chunked/stages.cuh"

namespace horner::cuda {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

// Accumulators times a factor, as bf16 into a tile.
__device__ void store_pairs(
    unsigned char* tile, const float (&d)[32], float factor, const Place& at
) {
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    uint32_t both[4];
#pragma unroll
    for (int e = 0; e < 4; ++e)
      both[e] = pack(d[4 * j + 2 * e] * factor, d[4 * j + 2 * e + 1] * factor);
    const int row = 16 * at.warp + at.lane % 16, unit = j + at.lane / 16;
    store_matrices(
        shared_address(tile) + tile_offset(row, unit), both[0], both[1], both[2], both[3]
    );
  }
}

// With a decay, one factor of what joins the state is scaled, and so rounded once more. In dq and dk with a normaliser
// that is k or q: their errors average out over the K of a weight q.k, those of v and do stand in all weights, whose sum
// hides nothing. So the tiles of these states have columns as rows.
template <bool kDecay, Norm kNorm>
constexpr bool kTurned = kDecay&& kNorm == Norm::shifts;

// Elements of the state between registers and memory: f(element, address of it). Tiles of 64 rows, from `first` on.
template <bool kTurn = false, int kTiles, class F>
__device__ void for_state(
    float (&S)[kTiles][32],
    const StateView& s,
    const Sweep& p,
    const Job& job,
    const Place& at,
    F&& f,
    int first = 0
) {
  float* base =
      static_cast<float*>(s.data) + job.part * s.part + job.b * s.b + (job.h / s.group) * s.h;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int e = 0; e < 32; ++e) {
      const int row = at.row + 8 * (e / 2 % 2), column = 8 * (e / 4) + at.pair + e % 2;
      const int r = 64 * (first + i) + (kTurn ? column : row);
      const int c = job.first_column + (kTurn ? row : column);
      if (r < p.R && c < p.N) f(S[i][e], base + r * s.r + c * s.n);
    }
  }
}

// S' = e^{G_C} S + sum_s e^{G_C-G_s} k_s^T v_s, in reverse e^{G_s}.
template <bool kDecay, bool kTurn = false, int kTiles, int kRows, Role kRole>
__device__ void update_state(
    float (&S)[kTiles][32], Memory<kRows, kRole>& m, int i, const Place& at, int first = 0
) {
  const Stage<kRows, kRole>& s = m.at(i);
  const uint32_t ks = shared_address(s.k) + first * kTileBytes, vs = shared_address(s.v);
  constexpr int kScaled = kTurn ? 1 : kTiles;
  uint32_t kw[kScaled][4][4];  // e^{G_C-G_s} k_s^T: rows of the state by tokens; turned v_s^T
  if constexpr (kDecay) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint2* weights = m.write[i % m.kStages] + 8 * j + at.lane % 4;
      const uint2 early = weights[0], late = weights[4];
      const int r = 16 * j + 8 * (at.lane / 16) + at.lane % 8;
      const int unit = 2 * at.warp + (at.lane / 8) % 2;
#pragma unroll
      for (int n = 0; n < kScaled; ++n) {
        const uint32_t tile = kTurn ? vs : ks + n * kTileBytes;
        load_matrices_transposed(kw[n][j], tile + tile_offset(r, unit));
#pragma unroll
        for (int e = 0; e < 4; ++e) kw[n][j][e] = weigh_pairs(kw[n][j][e], e < 2 ? early : late);
      }
    }
    const float kept = exp2_fast(m.G[i % m.kStages][63]);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 32; ++e) S[n][e] *= kept;
    }
  }
  product_fence();
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const uint32_t k = ks + n * kTileBytes;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (kDecay) {
        product<true>(S[n], kw[kTurn ? 0 : n][j], operand((kTurn ? k : vs) + j * 2048), true);
      } else {
        product<true, true>(S[n], operand(k + j * 2048), operand(vs + j * 2048), true);
      }
    }
  }
  product_commit();
  product_wait<0>();
#pragma unroll
  for (int n = 0; n < kTiles; ++n) fence_registers(S[n]);
}

// Registers: the state, fp32. Leaves the bf16 copy that the other group reads.
template <int kRows, bool kDecay, bool kReverse, Role kRole, bool kTurn>
__device__ void carry_state(
    const Sweep& p, const Crossing& out, const Job& job, Memory<kRows, kRole>& m
) {
  constexpr int kTiles = kRows / 64;
  const Place at;
  float S[kTiles][32] = {};
  const bool own = !kReverse || job.h % p.first.group == 0;  // a gradient counts once per state
  const bool enters = job.part > 0;
  if (enters || (p.first.data && own)) {
    const float factor = kReverse && !enters ? 1.f / float(p.scale) : 1.f;
    const StateView& from = enters ? p.entering : p.first;
    for_state<kTurn>(S, from, p, job, at, [&](float& x, const float* y) { x = *y * factor; });
  }
  const auto copy = [&](int i) {  // for chunk i
#pragma unroll
    for (int n = 0; n < kTiles; ++n) store_pairs(m.S[i & 1][n], S[n], 1.f, at);
    fence_async_proxy();
    m.arrive(m.copied[i & 1]);
  };
  copy(0);

  for (int i = 0; i < job.chunks; ++i) {
    const int c = chunk_at<kReverse>(job, i);
    const int last = int((p.T + 63) / 64) - 1;
    constexpr int kEach = kTurn ? kSumAnchor : kAnchor;
    if (kCrosses<kRole> && (c % kEach == kEach - 1 || c == last)) {
      const int64_t slot = int64_t(job.bh) * (last / kEach + 1) + c / kEach;
      float* to = out.state + (slot * job.blocks + job.block) * kRows * 64 + at.thread;
#pragma unroll
      for (int e = 0; e < 32 * kTiles; ++e) to[e * kGroup] = S[e / 32][e % 32];
    }
    m.wait_full(i);
    update_state<kDecay, kTurn>(S, m, i, at);
    m.template release<kDecay>(i, job.chunks);
    if (i + 1 == job.chunks) break;
    m.wait_taken(i + 1);
    copy(i + 1);
  }
  if (p.last.data && job.part == p.parts - 1 && job.h % p.last.group == 0) {
    const float factor = kReverse ? float(p.scale) : 1.f;
    for_state<kTurn>(S, p.last, p, job, at, [&](float x, float* to) { *to = x * factor; });
  }
}

#endif

}  // namespace
}  // namespace horner::cuda
