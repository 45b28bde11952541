// Products of tokens with a decay per key, inside a chunk of 64 tokens: mma.sync in bf16.
//
//   A_ts = sum_c q_tc k_sc e^{G_tc-G_sc}, s <= t        G_t = g_1 + .. + g_t, a number per key
//
// by halves: a pair s < t lies in one group of 2 h tokens, h = 1, 2, 4 .. 32, s in its early half and t in its late
// one. With m the last token of the early half,
//   e^{G_t-G_s} = e^{G_t-G_m} e^{G_m-G_s}: both exponents are <= 0, whatever the decay.
// So at level h each token has one row, M = q e^{G_t-G_m} if late, k e^{G_m-G_s} if early, and A is M M^T
// there; the gradient of both is W M, where W_ts = W_st = dA_ts, times the same factor.
//
// A warp owns 16 tokens, a stripe; lane l has tokens r = l / 4 and r + 8, and of 32 keys, a slice, the keys 8 i ..
// 8 i + 7, i = l % 4: one 16-byte load. In products over keys, these are k = 2 i, 2 i + 1 and + 8 of two steps: a
// sum may be taken in any order.
#pragma once

#include "cuda/chunks.cuh"
#include "cuda/decay.cuh"
#include "cuda/mma.cuh"

namespace horner::cuda {
namespace {

constexpr int kStripes = 4, kSlice = 32;  // of a chunk; keys

// Params: a kernel's, with K, the rows q, k (bf16) and g, and narrow_g: g is bf16, not fp32. Rows are whole units of 16
// bytes.
// Calls q, k and g of the chunk into the L2 cache, where SliceRows will look for them.
template <class Params>
__device__ void prefetch_slices(const Params& p, const Chunk& c, const Heads& h, const Place& me) {
  const int row = me.thread / 2, key = 64 * (me.thread % 2), size = p.narrow_g ? 2 : 4;
  if (row >= c.rows || key >= p.K) return;
  const char* g = static_cast<const char*>(p.g.data) +
                  (c.b * p.g.b + (c.first + row) * p.g.t + h.of(p.g) * p.g.h) * size;
  prefetch(at<__nv_bfloat16>(p.q, c, h) + row * p.q.t + key);  // 128 bytes of q and k
  prefetch(at<__nv_bfloat16>(p.k, c, h) + row * p.k.t + key);
  prefetch(g + key * size);
  if (!p.narrow_g && key + 32 < p.K) prefetch(g + (key + 32) * size);
}

// q, k and g of a slice, as loaded.
struct Raw {
  uint4 q[2], k[2], g[2][2];  // tokens r and r + 8
};

// A thread's first row of them, from its first key on.
struct SliceRows {
  const __nv_bfloat16 *q, *k;
  const unsigned char* g;

  template <class Params>
  __device__ SliceRows(const Params& p, const Chunk& c, const Heads& h, const Place& me) {
    const int64_t row = 16 * me.warp + me.r, key = 8 * me.i, g_at = row * p.g.t + key;
    q = at<__nv_bfloat16>(p.q, c, h) + row * p.q.t + key;
    k = at<__nv_bfloat16>(p.k, c, h) + row * p.k.t + key;
    g = p.narrow_g ? reinterpret_cast<const unsigned char*>(at<__nv_bfloat16>(p.g, c, h) + g_at)
                   : reinterpret_cast<const unsigned char*>(at<float>(p.g, c, h) + g_at);
  }
  template <class Params>
  __device__ void load(Raw& x, const Params& p, int rows, int slice, const Place& me) const {
    const int first = kSlice * slice, size = p.narrow_g ? 2 : 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      x.q[n] = x.k[n] = x.g[n][0] = x.g[n][1] = uint4{0, 0, 0, 0};
      if (16 * me.warp + me.r + 8 * n >= rows || first + 8 * me.i >= p.K) continue;
      x.q[n] = *reinterpret_cast<const uint4*>(q + 8 * n * p.q.t + first);
      x.k[n] = *reinterpret_cast<const uint4*>(k + 8 * n * p.k.t + first);
      const uint4* from = reinterpret_cast<const uint4*>(g + (8 * n * p.g.t + first) * size);
      x.g[n][0] = from[0];
      if (!p.narrow_g) x.g[n][1] = from[1];
    }
  }
};

// Values of a slice lie as a product leaves them: x[j][2 h + e] is token r + 8 h, key 8 i + 2 j + e.
using Values = float[4][4];

__device__ inline void clear(Values& d) {
#pragma unroll
  for (int j = 0; j < 4; ++j) d[j][0] = d[j][1] = d[j][2] = d[j][3] = 0.f;
}

// A matrix of zeros and ones over the tokens of a stripe, as an A operand: sums over time are products with it.
struct Pattern {
  uint32_t a[4];
};
constexpr uint32_t kOnes = 0x3f803f80u;
__device__ inline uint32_t ones(bool first, bool second) {
  return (first ? 0x3f80u : 0u) | (second ? 0x3f800000u : 0u);
}
// Row t: tokens up to t, or after t; flow: its transpose.
__device__ inline Pattern up_to(const Place& me) {
  const uint32_t near = ones(2 * me.i <= me.r, 2 * me.i + 1 <= me.r);
  return {{near, kOnes, 0u, near}};
}
__device__ inline Pattern flow_up_to(const Place& me) {
  const uint32_t near = ones(2 * me.i >= me.r, 2 * me.i + 1 >= me.r);
  return {{near, 0u, kOnes, near}};
}
__device__ inline Pattern flow_after(const Place& me) {
  const uint32_t near = ones(2 * me.i < me.r, 2 * me.i + 1 < me.r);
  return {{near, kOnes, 0u, near}};
}
// Row t of level `half` <= 8: tokens of its half up to t where t is late, after t where it is early.
__device__ inline Pattern level_pattern(int half, bool flow, const Place& me) {
  const int c = 2 * me.i;
  const auto row = [&](bool late) {
    const auto in = [&](int column) {
      const bool ordered =
          flow ? (late ? column >= me.r : column < me.r) : (late ? column <= me.r : column > me.r);
      return (me.r ^ column) < half && ordered;
    };
    return ones(in(c), in(c + 1));
  };
  return {{row(half == 8 ? false : me.r & half), 0u, 0u, row(half == 8 ? true : me.r & half)}};
}

__device__ inline float decay_at(const Raw& x, int h, int key, bool narrow) {
  return log2_decay(
      narrow ? element(x.g[h][0], key) : __uint_as_float(word(x.g[h][key / 4], key % 4))
  );
}

// Log-decays of a slice: as B operands, each the sum of two bf16; and summed since the first token of the stripe.
struct Decays {
  uint32_t high[2][4], low[2][4];

  __device__ Decays(const Raw& x, bool narrow) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int h = e / 4, j = e % 4;
      const float g[2] = {decay_at(x, h, 2 * j, narrow), decay_at(x, h, 2 * j + 1, narrow)};
      const uint32_t both = pack(g[0], g[1]);
      high[h][j] = transposed(both);
      low[h][j] = transposed(pack(g[0] - low_half(both), g[1] - high_half(both)));
    }
  }
  __device__ void sum(Values& d, const Pattern& p) const {
    clear(d);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      multiply(d[j], p.a, high[0][j], high[1][j]);
      multiply(d[j], p.a, low[0][j], low[1][j]);
    }
  }
};

// The stripe's sums, from those of its tokens.
__device__ inline void stripe_total(float (&total)[8], const Values& since, const Place& me) {
#pragma unroll
  for (int n = 0; n < 8; ++n) total[n] = __shfl_sync(~0u, since[n / 2][2 + n % 2], 28 + me.i);
}

// Rows of one level, or any rows times factors, as operands: pairs of keys 2 j, 2 j + 1 of tokens r, r + 8.
struct Fragment {
  uint32_t x[2][4];

  Fragment() = default;
  __device__ explicit Fragment(const uint4 (&rows)[2])
      : x{{rows[0].x, rows[0].y, rows[0].z, rows[0].w},
          {rows[1].x, rows[1].y, rows[1].z, rows[1].w}} {}
  __device__ void set(int h, uint4 from, const Values& factor) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      x[h][j] = pack(
          element(from, 2 * j) * factor[j][2 * h], element(from, 2 * j + 1) * factor[j][2 * h + 1]
      );
    }
  }
  __device__ void store(uint4* to, int lane) const {  // (2,32)
#pragma unroll
    for (int h = 0; h < 2; ++h) to[32 * h + lane] = {x[h][0], x[h][1], x[h][2], x[h][3]};
  }
  __device__ void load(const uint4* from, int lane) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint4 v = from[32 * h + lane];
#pragma unroll
      for (int j = 0; j < 4; ++j) x[h][j] = word(v, j);
    }
  }
  // The same in the order of A operands, which then need no moves.
  __device__ void store_operands(uint4* to, int lane) const {
#pragma unroll
    for (int s = 0; s < 2; ++s)
      to[32 * s + lane] = {x[0][2 * s], x[1][2 * s], x[0][2 * s + 1], x[1][2 * s + 1]};
  }
};

// Whether tokens that differ in these bits meet at this level.
__device__ inline bool meet(int apart, int half) { return (apart & -half) == half; }

// Factors of a level inside the stripe. At level 1, a late row decays by itself, an early one not.
__device__ inline void level_factors(
    Values& factor, int half, const Decays& d, const Raw& x, bool narrow, const Place& me
) {
  if (half == 1) {
#pragma unroll
    for (int e = 0; e < 16; ++e) {
      const float g = decay_at(x, e / 2 % 2, e / 4 * 2 + e % 2, narrow);
      factor[e / 4][e % 4] = me.r & 1 ? g : 0.f;
    }
  } else {
    d.sum(factor, level_pattern(half, false, me));
  }
#pragma unroll
  for (int e = 0; e < 16; ++e) factor[e / 4][e % 4] = exp2_fast(factor[e / 4][e % 4]);
}
// Whether token r + 8 h of a stripe is late at that level.
__device__ inline bool late_token(int half, int h, const Place& me) {
  return half == 8 ? h == 1 : (me.r & half) != 0;
}
// The factors, and rows times them: q where it is late, else k.
__device__ inline void inner_level(
    Values& factor,
    Fragment& m,
    int half,
    const Decays& d,
    const Raw& x,
    bool narrow,
    const Place& me
) {
  level_factors(factor, half, d, x, narrow, me);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool late = late_token(half, h, me);
    m.set(h, either(late, x.q[h], x.k[h]), factor);
  }
}

// d += rows of a times rows of b (8 of them): one half of a stripe.
__device__ inline void multiply_rows(
    float (&d)[4], const Fragment& a, const Fragment& b, int half
) {
#pragma unroll
  for (int s = 0; s < 4; s += 2) {
    multiply(d, a.x[0][s], a.x[1][s], a.x[0][s + 1], a.x[1][s + 1], b.x[half][s], b.x[half][s + 1]);
  }
}

// The block of A that lies in one stripe; kTransposed: of A^T.
template <bool kTransposed>
struct InnerScores {
  float eight[4] = {};  // level 8: rows 8 .. and columns .. 7, or the reverse
  float near[4] = {};   // the two blocks of 8 x 8 on the diagonal, one above the other

  // m: late rows are those of q, early ones of k; or a and b, of which the one's rows and the other's columns count.
  __device__ void add_eight(const Fragment& m) { add_eight(m, m); }
  __device__ void add_eight(const Fragment& a, const Fragment& b) {
    multiply_rows(eight, a, b, kTransposed ? 1 : 0);
  }
  __device__ void add(int half, const Fragment& m, const Place& me) { add(half, m, m, me); }
  __device__ void add(int half, const Fragment& a, const Fragment& b, const Place& me) {
    float d[2][4] = {};
    multiply_rows(d[0], a, b, 0);
    multiply_rows(d[1], a, b, 1);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = 2 * me.i + e % 2;
      const bool there = kTransposed ? column > me.r : column < me.r;
      near[e] += there && meet(me.r ^ column, half) ? d[e / 2][e] : 0.f;
    }
  }
  __device__ void add_same(const Raw& x, const Place& me) {
    const Fragment q(x.q), k(x.k);
    float d[2][4] = {};
    multiply_rows(d[0], q, k, 0);
    multiply_rows(d[1], q, k, 1);
#pragma unroll
    for (int e = 0; e < 4; ++e) near[e] += 2 * me.i + e % 2 == me.r ? d[e / 2][e] : 0.f;
  }
  __device__ void operand(uint32_t (&a)[4]) const {
    a[0] = pack(near[0], near[1]);
    a[3] = pack(near[2], near[3]);
    a[1] = kTransposed ? 0u : pack(eight[2], eight[3]);
    a[2] = kTransposed ? pack(eight[0], eight[1]) : 0u;
  }
};

// Two products of 8 columns as an A operand over 16 tokens.
__device__ inline void to_operand(uint32_t (&a)[4], const float (&d)[2][4]) {
  a[0] = pack(d[0][0], d[0][1]);
  a[1] = pack(d[0][2], d[0][3]);
  a[2] = pack(d[1][0], d[1][1]);
  a[3] = pack(d[1][2], d[1][3]);
}

// Sums of the decays over the stripes of a chunk, as they lie in shared memory: (4,32).
__device__ inline void add_total(
    float (&sum)[8], const float* totals, int stripe, const Place& me
) {
  const float4* from = reinterpret_cast<const float4*>(totals + kSlice * stripe + 8 * me.i);
  const float4 a = from[0], b = from[1];
  sum[0] += a.x, sum[1] += a.y, sum[2] += a.z, sum[3] += a.w;
  sum[4] += b.x, sum[5] += b.y, sum[6] += b.z, sum[7] += b.w;
}
__device__ inline void store_eight(float* to, const float (&x)[8]) {
  reinterpret_cast<float4*>(to)[0] = {x[0], x[1], x[2], x[3]};
  reinterpret_cast<float4*>(to)[1] = {x[4], x[5], x[6], x[7]};
}

// Level 16 or 32, where a whole stripe is late or early.
template <int kHalf>
__device__ bool late_stripe(const Place& me) {
  return me.warp & (kHalf / 16);
}
// From a stripe to a place before it (late) or after it, over the stripes first .. end - 1 that lie between.
struct DecayPath {
  bool late;
  int first, end;
};
__device__ inline DecayPath to_start(const Place& me) { return {true, 0, me.warp}; }
__device__ inline DecayPath to_end(const Place& me) { return {false, me.warp + 1, kStripes}; }
template <int kHalf>
__device__ DecayPath to_middle(const Place& me) {
  const bool late = late_stripe<kHalf>(me);
  const int between = kHalf == 32 && (me.warp == 0 || me.warp == 3) ? 1 : 0;
  const int first = late ? me.warp - between : me.warp + 1;
  return {late, first, first + between};
}

// Factors of the way: 2^(base + since), early rows 2^(base - since). Made when they are used: registers are scarce.
struct Factors {
  float base[8];
  bool late;

  __device__ Factors(const DecayPath& path, const float* totals, const Place& me)
      : base{}, late(path.late) {
#pragma unroll 1
    for (int w = path.first; w < path.end; ++w) add_total(base, totals, w, me);
    if (!late) add_total(base, totals, me.warp, me);
  }
  __device__ void powers(Values& factor, const Values& since) const {
#pragma unroll
    for (int e = 0; e < 16; ++e) {
      const float b = base[e / 4 * 2 + e % 2], s = since[e / 4][e % 4];
      factor[e / 4][e % 4] = exp2_fast(late ? b + s : b - s);
    }
  }
  __device__ void weigh(Fragment& m, uint4 row0, uint4 row1, const Values& since) const {
    Values factor;
    powers(factor, since);
    m.set(0, row0, factor);
    m.set(1, row1, factor);
  }
};
template <int kHalf>
__device__ void outer_level(
    Fragment& m, const Values& since, const float* totals, const Raw& x, const Place& me
) {
  const bool late = late_stripe<kHalf>(me);
  Factors(to_middle<kHalf>(me), totals, me)
      .weigh(m, either(late, x.q[0], x.k[0]), either(late, x.q[1], x.k[1]), since);
}

}  // namespace
}  // namespace horner::cuda
