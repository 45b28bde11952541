// `delta`, level 2: chunks of 64 tokens, in bf16 with fp32 sums, any GPU from sm_80 on: mma.sync, and wgmma on sm_90a.
//
// Inside a chunk G_t = g_1 + .. + g_t and M_ts = exp(G_t - G_s) for s <= t. S enters the chunk, Z is the gradient of the state
// that leaves it. E are the errors before the factor beta, so nothing is divided by beta:
//
//   solve      A = (I + strict_lower(M * K K^T) diag(b))^-1      every chunk by itself, fp32
//              P = scale (M * Q K^T) diag(b)
//   forward    E  = A (V - diag(e^G) K S)                        one sweep over time
//              O  = scale diag(e^G) Q S + P E
//              S' = e^{G_C} S + K^T diag(b e^{G_C-G}) E
//   reverse    dV = A^T (P^T dO + diag(b e^{G_C-G}) K Z)         one sweep back; Z = dS_T at the end
//              Z' = e^{G_C} Z + Q^T diag(scale e^G) dO - K^T diag(e^G) dV
//   gradient   W1 = dO E^T,  W2 = dV E^T                         every chunk by itself
//              dP = scale M * W1 diag(b),  D = -strict_lower(M * W2) diag(b)
//              dQ = x + dP K                      x = scale diag(e^G) dO S^T
//              dK = b y + z + dP^T Q + (D + D^T) K      y = diag(e^{G_C-G}) E Z^T,  z = -diag(e^G) dV S^T
//              F  = scale M * (Q K^T) * W1 - strict_lower(M * (K K^T) * W2)
//              db_s = k_s.y_s + sum_t F_ts
//              dg_i = sum_{t>=i} (q_t.x_t + k_t.z_t) + sum_{s<i} b_s k_s.y_s + sum_{s<i<=t} b_s F_ts + e^{G_C} <Z, S>
//
// Sweeps carry the state transposed, in registers. A warp owns 16 value columns; they are the 16 rows of all its products,
// and no other warp needs them. A 16 x 64 result over tokens, rounded, is the warp's next operand.
#pragma once

#include "cuda/chunks.cuh"
#include "cuda/decay.cuh"
#include "cuda/mma.cuh"
#include "ops/delta/delta.cuh"

namespace horner::cuda {
namespace {

// 16 x 8 kN: element e of [n] is row r + 8 (e / 2), column 8 n + 2 i + e % 2.
template <int kN>
using Columns = float[kN][4];
using Product = Columns<8>;

// Addresses at which a lane reads four 8x8 matrices of a tile. Either: rows lane % 16, one unit further for lanes >= 16. Or:
// eight rows further for lanes >= 16, one unit further for every second group of eight lanes. All rows of a lane have the
// same swizzle, lane % 8. So two units further is an exclusive or with 32, and sixteen rows further are 2048 bytes.
struct Reader {
  uint32_t rows, halves;
  __device__ explicit Reader(const Place& me)
      : rows(tile_offset(me.lane % 16, me.lane / 16)),
        halves(tile_offset(8 * (me.lane / 16) + me.lane % 8, me.lane / 8 % 2)) {}
};
__device__ inline uint32_t step_address(uint32_t tiles, uint32_t offset, int step) {
  return tiles + (step / 4) * kTileBytes + (offset ^ (step % 4 * 32));
}

// Operand a. load_rows: 16 rows of tiles, columns from 16 step on. load_columns: 16 columns as rows, over rows from 16 step on.
__device__ inline void load_rows(
    uint32_t (&a)[4], uint32_t tiles, int stripe, int step, const Reader& at
) {
  load_matrices(a, step_address(tiles, at.rows, step) + stripe * 2048);
}
__device__ inline void load_columns(
    uint32_t (&a)[4], uint32_t tiles, int stripe, int step, const Reader& at
) {
  load_matrices_transposed(a, step_address(tiles, at.halves, stripe) + step * 2048);
}

// d += a X^T. Columns of d are rows of the tiles X, from 16 first on; a covers the columns of X from 16 step on.
template <int kN>
__device__ void add_rows(
    Columns<kN>& d, const uint32_t (&a)[4], uint32_t tiles, int step, int first, const Reader& at
) {
  const uint32_t from = step_address(tiles, at.halves, step);
#pragma unroll
  for (int n = 0; n < kN / 2; ++n) {
    if (n < first) continue;
    uint32_t b[4];
    load_matrices(b, from + n * 2048);
    multiply(d[2 * n], a, b[0], b[1]);
    multiply(d[2 * n + 1], a, b[2], b[3]);
  }
}
// d += a X. Columns of d are columns 16 first .. 16 last + 15 of the tile X; a covers the rows of X from 16 step on.
template <int kN>
__device__ void add_columns(
    Columns<kN>& d,
    const uint32_t (&a)[4],
    uint32_t tile,
    int step,
    int last,
    const Reader& at,
    int first = 0
) {
#pragma unroll
  for (int n = 0; n < kN / 2; ++n) {
    if (n > last) continue;
    uint32_t b[4];
    load_matrices_transposed(b, step_address(tile, at.rows, first + n) + step * 2048);
    multiply(d[2 * n], a, b[0], b[1]);
    multiply(d[2 * n + 1], a, b[2], b[3]);
  }
}

// The same by four warps with all 64 rows of the tiles, for the operands a of all steps. On sm_90a the four warps issue one
// asynchronous instruction: begin_products, products, commit_products. wait_products<kPending> waits until at most kPending
// groups still run; only then may their operands and results be touched. kAdd: adds to d; lower: the tile is lower triangular.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ inline void show_tiles() { fence_async_proxy(); }  // for products after the next barrier
__device__ inline void begin_products() { product_fence(); }
__device__ inline void commit_products() { product_commit(); }
template <int kPending>
__device__ void wait_products() {
  product_wait<kPending>();
}
__device__ inline float (&flat(Product& d))[32] { return reinterpret_cast<float(&)[32]>(d); }
__device__ inline void fence_product(Product& d) { fence_registers(flat(d)); }
template <bool kAdd, int kSteps>
__device__ void
multiply_rows(Product& d, const uint32_t (&a)[kSteps][4], uint32_t tiles, bool, const Reader&) {
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    const uint32_t from = tiles + j / 4 * kTileBytes + j % 4 * 32;
    product<false>(flat(d), a[j], operand(from), kAdd || j > 0);
  }
}
template <bool kAdd>
__device__ void
multiply_columns(Product& d, const uint32_t (&a)[4][4], uint32_t tile, bool, const Reader&) {
#pragma unroll
  for (int j = 0; j < 4; ++j) product<true>(flat(d), a[j], operand(tile + j * 2048), kAdd || j > 0);
}
// d += x y^T over 16 kSteps columns of the tiles x and y. Transposed: over the rows of one tile, for 64 columns.
template <bool kTransposeX, bool kTransposeY, int kSteps>
__device__ void
multiply_tiles(Product& d, uint32_t x, uint32_t y, bool add, const Reader&, const Place&) {
  const auto from = [](uint32_t tiles, int j, bool transposed) {
    return operand(transposed ? tiles + j * 2048 : tiles + j / 4 * kTileBytes + j % 4 * 32);
  };
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    product<kTransposeX, kTransposeY>(
        flat(d), from(x, j, kTransposeX), from(y, j, kTransposeY), add || j > 0
    );
  }
}
#else
__device__ inline void show_tiles() {}
__device__ inline void begin_products() {}
__device__ inline void commit_products() {}
template <int kPending>
__device__ void wait_products() {}
__device__ inline void fence_product(Product&) {}
__device__ inline void clear_product(Product& d) {
#pragma unroll
  for (int e = 0; e < 32; ++e) d[e / 4][e % 4] = 0.f;
}
template <bool kAdd, int kSteps>
__device__ void multiply_rows(
    Product& d, const uint32_t (&a)[kSteps][4], uint32_t tiles, bool lower, const Reader& at
) {
  if (!kAdd) clear_product(d);
#pragma unroll
  for (int j = 0; j < kSteps; ++j) add_rows(d, a[j], tiles, j, lower ? j : 0, at);
}
template <bool kAdd>
__device__ void multiply_columns(
    Product& d, const uint32_t (&a)[4][4], uint32_t tile, bool lower, const Reader& at
) {
  if (!kAdd) clear_product(d);
#pragma unroll
  for (int j = 0; j < 4; ++j) add_columns(d, a[j], tile, j, lower ? j : 3, at);
}
template <bool kTransposeX, bool kTransposeY, int kSteps>
__device__ void multiply_tiles(
    Product& d, uint32_t x, uint32_t y, bool add, const Reader& at, const Place& me
) {
  if (!add) clear_product(d);
  const int stripe = me.warp % 4;
#pragma unroll 1
  for (int j = 0; j < kSteps; ++j) {
    uint32_t a[4];
    kTransposeX ? load_columns(a, x, stripe, j, at) : load_rows(a, x, stripe, j, at);
    kTransposeY ? add_columns(d, a, y, j, 3, at) : add_rows(d, a, y, j, 0, at);
  }
}
#endif

// Columns 16 j .. 16 j + 15 of a product, rounded, as an operand a.
template <int kN>
__device__ void round_columns(uint32_t (&a)[4], const Columns<kN>& d, int j) {
#pragma unroll
  for (int e = 0; e < 4; ++e)
    a[e] = pack(d[2 * j + e / 2][2 * (e % 2)], d[2 * j + e / 2][2 * (e % 2) + 1]);
}

// d times a factor per column.
__device__ inline void weigh_columns(Product& d, const float* factors, const Place& me) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float2 f = *reinterpret_cast<const float2*>(factors + 8 * n + 2 * me.i);
    d[n][0] *= f.x, d[n][1] *= f.y, d[n][2] *= f.x, d[n][3] *= f.y;
  }
}

// Stores 16 columns of one row, of which `width` exist. A lane holds columns 2 i, 2 i + 1 (low) and these + 8 (high).
// Neighbouring lanes swap, so that each stores 8 bytes.
__device__ inline void store_sixteen(
    __nv_bfloat16* row, uint32_t low, uint32_t high, bool valid, int width, const Place& me
) {
  const bool odd = me.i & 1;
  const uint32_t other = __shfl_xor_sync(~0u, odd ? low : high, 1);
  const int column = odd ? 6 + 2 * me.i : 2 * me.i;
  if (valid && column < width)
    *reinterpret_cast<uint2*>(row + column) = odd ? uint2{other, high} : uint2{low, other};
}

// Stores a product over tokens (16 value columns x 64), already rounded to operands, to its rows in memory.
__device__ inline void store_tokens(
    const uint32_t (&a)[4][4],
    const Rows& to,
    const Chunk& c,
    const Heads& h,
    int column,
    int width,
    const Place& me
) {
  __nv_bfloat16* row = at<__nv_bfloat16>(to, c, h) + me.r * to.t + column;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const uint32_t low = transposed(a[n / 2][2 * (n % 2)]);
    const uint32_t high = transposed(a[n / 2][2 * (n % 2) + 1]);
    store_sixteen(row, low, high, 8 * n + me.r < c.rows, width - column, me);
    row += 8 * to.t;
  }
}

// What a thread copies of rows of 8 kTiles units: one unit of every kRows-th row, all with the same swizzle.
template <int kTiles, int kBlock>
struct Copier {
  static constexpr int kUnits = 8 * kTiles, kRows = kBlock / kUnits;
  static_assert(kRows % 8 == 0);
  int row, unit;
  __device__ explicit Copier(const Place& me) : row(me.thread / kUnits), unit(me.thread % kUnits) {}
};

// Loads 64 tokens of one head, columns first .. first + 64 kTiles - 1, into tiles; zeros outside.
template <int kTiles, int kBlock>
__device__ void load_chunk(
    uint32_t to,
    const Rows& x,
    const Chunk& c,
    const Heads& h,
    int first,
    int width,
    const Place& me
) {
  const Copier<kTiles, kBlock> own(me);
  const int column = first + own.unit * 8, rows = column < width ? c.rows : 0;
  const __nv_bfloat16* from = at<__nv_bfloat16>(x, c, h) + own.row * x.t + column;
  to += own.unit / 8 * kTileBytes + tile_offset(own.row, own.unit % 8);
#pragma unroll
  for (int n = 0; n < 64 / own.kRows; ++n) {
    copy_async(to + n * own.kRows * 128, from, own.row + n * own.kRows < rows);
    from += own.kRows * x.t;
  }
}
// Loads kHeight contiguous rows of 64 kTiles columns into tiles of kHeight rows.
template <int kTiles, int kHeight, int kBlock>
__device__ void load_matrix(uint32_t to, const void* from, const Place& me) {
  const Copier<kTiles, kBlock> own(me);
  const unsigned char* first = static_cast<const unsigned char*>(from) + me.thread * 16;
  to += own.unit / 8 * (kHeight * 128) + tile_offset(own.row, own.unit % 8);
#pragma unroll
  for (int n = 0; n < kHeight / own.kRows; ++n)
    copy_async(to + n * own.kRows * 128, first + n * kBlock * 16, true);
}

// Log2-decay and beta of tokens 2 l and 2 l + 1, for lane l; 0 after the end.
struct Numbers {
  float2 g, b;
};
__device__ inline Numbers load_numbers(
    const DeltaChunks& p, const Chunk& c, const Heads& h, const Place& me
) {
  const auto two = [&](const Rows& x) {
    if (!x.data) return float2{0.f, 0.f};
    const float* from = at<float>(x, c, h);
    const int t = 2 * me.lane;
    return float2{t < c.rows ? from[t * x.t] : 0.f, t + 1 < c.rows ? from[(t + 1) * x.t] : 0.f};
  };
  return {two(p.g), two(p.beta)};
}

// Sums of the log2-decays since the chunk's start: up to tokens 2 l and 2 l + 1, and over all 64.
struct Since {
  float2 G;
  float all;
};
__device__ inline Since sum_decays(float2 g, const Place& me) {
  g = {log2_decay(g.x), log2_decay(g.y)};
  const float sum = sum_to_lane(g.x + g.y, me.lane);
  const float before = __shfl_up_sync(~0u, sum, 1);
  return {{(me.lane == 0 ? 0.f : before) + g.x, sum}, __shfl_sync(~0u, sum, 31)};
}

// A matrix (64,64) of a chunk and head.
__device__ inline __nv_bfloat16* square(
    void* all, const DeltaChunks& p, int64_t slot, const Heads& h
) {
  return static_cast<__nv_bfloat16*>(all) + (slot * p.H + h.own) * 64 * 64;
}

}  // namespace
}  // namespace horner::cuda
