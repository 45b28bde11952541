// `delta`: gradients of q, k, g and beta, every chunk by itself (chunked.cuh).
#include "cuda/launch.cuh"
#include "ops/delta/chunked.cuh"

namespace horner::cuda {
namespace {

constexpr int kBlock =
    512;  // four groups of four warps; a warp owns a stripe of 16 tokens and 64 columns

template <int kKeys, int kValues>
struct Memory {
  unsigned char q[kKeys / 64][kTileBytes], k[kKeys / 64][kTileBytes];
  unsigned char out[kValues / 64][kTileBytes], dv[kValues / 64][kTileBytes];
  unsigned char error[kValues / 64][kTileBytes];
  unsigned char S[kKeys / 64][kValues * 128], Z[kKeys / 64][kValues * 128];  // transposed
  unsigned char dP[kTileBytes], D[kTileBytes];
  float G[64], b[64], read[64], until[64], kept;  // log2, e^G, e^{G_C-G}, e^{G_C}
  float F_columns[8][64], F_rows[2][64], F_same[64];
  float rho[4][64], kappa[2][64];  // for each 64 keys: q.x, then k.z; k.y
  float flow[16];                  // <Z, S>
};

__device__ void finish_products(Product& x, Product& y) {
  commit_products();
  wait_products<0>();
  fence_product(x);
  fence_product(y);
}

// A barrier for all threads of the block, which may be on different code paths.
__device__ void block_sync() { asm volatile("bar.sync 1, %0;" ::"n"(kBlock) : "memory"); }

// Each row of d times its factor. Then x_t.d_t with the rows x of a tile, into sums.
__device__ void weigh_rows(
    Product& d,
    const float* factors,
    float scale,
    const unsigned char* tile,
    float* sums,
    int stripe,
    const Place& me
) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = 16 * stripe + me.r + 8 * half;
    const float f = factors[t] * scale;
    float sum = 0.f;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const uint32_t two = *reinterpret_cast<const uint32_t*>(tile + tile_offset(t, n) + 4 * me.i);
      float* x = d[n] + 2 * half;
      x[0] *= f, x[1] *= f;
      sum += x[0] * low_half(two) + x[1] * high_half(two);
    }
    sum = quad_sum(sum);
    if (me.i == 0) sums[t] = sum;
  }
}

__device__ void store_rows(
    const Product& d,
    const Rows& to,
    const Chunk& c,
    const Heads& h,
    int column,
    int width,
    int stripe,
    const Place& me
) {
  __nv_bfloat16* row = at<__nv_bfloat16>(to, c, h) + (16 * stripe + me.r) * to.t + column;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool valid = 16 * stripe + me.r + 8 * half < c.rows;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t a[4];
      round_columns(a, d, j);
      store_sixteen(row + 16 * j, a[half], a[2 + half], valid, width - column - 16 * j, me);
    }
    row += 8 * to.t;
  }
}

// Writes M * W b, the gradient of the scores, to its tile. Also sums F = M * X * W (X: the scores) over rows (times b) and over
// columns; F_tt is stored apart. strict: only s < t, with a negative sign.
template <int kKeys, int kValues>
__device__ void score_gradient(
    Memory<kKeys, kValues>& m,
    const Product& X,
    const Product& W,
    unsigned char* tile,
    float scale,
    bool strict,
    int stripe,
    const Place& me
) {
  const float late[2] = {m.G[16 * stripe + me.r], m.G[16 * stripe + me.r + 8]};
  float rows[2] = {};
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const int first = 8 * n + 2 * me.i;
    const float2 G = *reinterpret_cast<const float2*>(m.G + first);
    const float2 b = *reinterpret_cast<const float2*>(m.b + first);
    float columns[2] = {}, w[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int t = 16 * stripe + me.r + 8 * (e / 2), s = first + e % 2;
      const bool there = strict ? s < t : s <= t;
      const float decay = exp2_fast(late[e / 2] - (e % 2 ? G.y : G.x)) * scale;
      const float gradient = there ? decay * W[n][e] : 0.f;
      const float F = gradient * X[n][e], beta = e % 2 ? b.y : b.x;
      w[e] = gradient * beta;
      if (s < t) columns[e % 2] += F, rows[e / 2] += F * beta;
      if (s == t && !strict) m.F_same[t] = F;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = 16 * stripe + me.r + 8 * half;
      *reinterpret_cast<uint32_t*>(tile + tile_offset(t, n) + 4 * me.i) =
          pack(w[2 * half], w[2 * half + 1]);
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
#pragma unroll
      for (int d = 4; d < 32; d *= 2) columns[e] += __shfl_xor_sync(~0u, columns[e], d);
      if (me.r == 0) m.F_columns[stripe + 4 * strict][first + e] = columns[e];
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = quad_sum(rows[half]);
    if (me.i == 0) m.F_rows[strict][16 * stripe + me.r + 8 * half] = sum;
  }
}

// Numbers of a lane's two tokens. sums_before: over all earlier tokens; sums_from: from this token to the end.
struct Pair {
  float a, b;
};
__device__ Pair sums_before(Pair x, const Place& me) {
  const float sum = sum_to_lane(x.a + x.b, me.lane);
  float before = __shfl_up_sync(~0u, sum, 1);
  if (me.lane == 0) before = 0.f;
  return {before, before + x.a};
}
__device__ Pair sums_from(Pair x, const Place& me) {
  float sum = x.a + x.b;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const float other = __shfl_down_sync(~0u, sum, d);
    if (me.lane + d < 32) sum += other;
  }
  float after = __shfl_down_sync(~0u, sum, 1);
  if (me.lane == 31) after = 0.f;
  return {after + x.b + x.a, after + x.b};
}

// The copies of a chunk: its tokens, the state S that enters it and the gradient Z of the state that leaves it.
template <int kKeys, int kValues>
__device__ __forceinline__ void load(
    Memory<kKeys, kValues>& m,
    const DeltaChunks& p,
    const Chunk& c,
    const Heads& h,
    unsigned slot,
    const Place& me
) {
  load_chunk<kKeys / 64, kBlock>(shared_address(m.q), p.q, c, h, 0, p.K, me);
  load_chunk<kKeys / 64, kBlock>(shared_address(m.k), p.k, c, h, 0, p.K, me);
  load_chunk<kValues / 64, kBlock>(shared_address(m.out), p.out, c, h, 0, p.V, me);
  load_chunk<kValues / 64, kBlock>(shared_address(m.dv), p.dv, c, h, 0, p.V, me);
  load_chunk<kValues / 64, kBlock>(shared_address(m.error), p.error, c, h, 0, p.V, me);
  const int64_t state = (int64_t(slot) * p.H + h.own) * kKeys * kValues;
  load_matrix<kKeys / 64, kValues, kBlock>(
      shared_address(m.S), static_cast<const __nv_bfloat16*>(p.S) + state, me
  );
  load_matrix<kKeys / 64, kValues, kBlock>(
      shared_address(m.Z), static_cast<const __nv_bfloat16*>(p.Z) + state, me
  );
  copy_commit();
  if (me.warp != 0) return;
  const Numbers x = load_numbers(p, c, h, me);
  const Since d = sum_decays(x.g, me);
  reinterpret_cast<float2*>(m.G)[me.lane] = d.G;
  reinterpret_cast<float2*>(m.b)[me.lane] = x.b;
  reinterpret_cast<float2*>(m.read)[me.lane] = {exp2_fast(d.G.x), exp2_fast(d.G.y)};
  reinterpret_cast<float2*>(m.until)[me.lane] = {
      exp2_fast(d.all - d.G.x), exp2_fast(d.all - d.G.y)};
  if (me.lane == 0) m.kept = exp2_fast(d.all);
}

// Which 64 keys of dq or dk a group of warps owns. With 64 keys, groups 1 and 3 compute the same as groups 0 and 2, and do
// not store it.
template <int kKeys>
struct Part {
  int group, stripe, part, tile;
  __device__ explicit Part(const Place& me)
      : group(me.warp / 4), stripe(me.warp % 4), part(group % 2), tile(part % (kKeys / 64)) {}
  __device__ bool stores() const { return part == tile; }
};

// Groups 0 and 1: dP and D with their sums, then dq = e^G (dO S^T) + dP K.
template <int kKeys, int kValues>
__device__ __forceinline__ void compute_dq(
    Memory<kKeys, kValues>& m,
    const DeltaChunks& p,
    const Chunk& c,
    const Heads& h,
    const Part<kKeys>& own,
    const Reader& reader,
    const Place& me
) {
  const bool second = own.group == 1;
  const uint32_t qs = shared_address(m.q), ks = shared_address(m.k), out = shared_address(m.out);
  Product x, y;
  begin_products();
  multiply_tiles<false, false, kKeys / 16>(x, second ? ks : qs, ks, false, reader, me);
  multiply_tiles<false, false, kValues / 16>(
      y, second ? shared_address(m.dv) : out, shared_address(m.error), false, reader, me
  );
  finish_products(x, y);
  score_gradient(m, x, y, second ? m.D : m.dP, second ? -1.f : p.scale, second, own.stripe, me);
  show_tiles();
  begin_products();
  multiply_tiles<false, true, kValues / 16>(
      x, out, shared_address(m.S[own.tile]), false, reader, me
  );
  finish_products(x, x);
  weigh_rows(x, m.read, p.scale, m.q[own.tile], m.rho[own.part], own.stripe, me);
  block_sync();
  begin_products();
  multiply_tiles<false, true, 4>(
      x, shared_address(m.dP), ks + own.tile * kTileBytes, true, reader, me
  );
  finish_products(x, x);
  if (own.stores()) store_rows(x, p.dq, c, h, 64 * own.tile, p.K, own.stripe, me);
}

// Groups 2 and 3: dk = b e^{G_C-G} (E Z^T) - e^G (dV S^T) + dP^T Q + (D + D^T) K.
template <int kKeys, int kValues>
__device__ __forceinline__ void compute_dk(
    Memory<kKeys, kValues>& m,
    const DeltaChunks& p,
    const Chunk& c,
    const Heads& h,
    const Part<kKeys>& own,
    const Reader& reader,
    const Place& me
) {
  const uint32_t dP = shared_address(m.dP), D = shared_address(m.D);
  const uint32_t q = shared_address(m.q) + own.tile * kTileBytes;
  const uint32_t k = shared_address(m.k) + own.tile * kTileBytes;
  Product x, y;
  begin_products();
  multiply_tiles<false, true, kValues / 16>(
      x, shared_address(m.error), shared_address(m.Z[own.tile]), false, reader, me
  );
  multiply_tiles<false, true, kValues / 16>(
      y, shared_address(m.dv), shared_address(m.S[own.tile]), false, reader, me
  );
  finish_products(x, y);
  weigh_rows(x, m.until, 1.f, m.k[own.tile], m.kappa[own.part], own.stripe, me);
  weigh_rows(y, m.read, -1.f, m.k[own.tile], m.rho[2 + own.part], own.stripe, me);
  const float b[2] = {m.b[16 * own.stripe + me.r], m.b[16 * own.stripe + me.r + 8]};
#pragma unroll
  for (int e = 0; e < 32; ++e) x[e / 4][e % 4] = x[e / 4][e % 4] * b[e / 2 % 2] + y[e / 4][e % 4];
  block_sync();
  begin_products();
  multiply_tiles<true, true, 4>(x, dP, q, true, reader, me);
  multiply_tiles<false, true, 4>(x, D, k, true, reader, me);
  multiply_tiles<true, true, 4>(x, D, k, true, reader, me);
  finish_products(x, x);
  if (own.stores()) store_rows(x, p.dk, c, h, 64 * own.tile, p.K, own.stripe, me);
}

// <Z, S>, one share per warp.
template <int kKeys, int kValues>
__device__ __forceinline__ void sum_flow(Memory<kKeys, kValues>& m, const Place& me) {
  float flow = 0.f;
  for (int e = me.thread; e < kKeys * kValues / 8; e += kBlock) {
    const uint4 a = reinterpret_cast<const uint4*>(m.S)[e];
    const uint4 b = reinterpret_cast<const uint4*>(m.Z)[e];
#pragma unroll
    for (int n = 0; n < 8; ++n) flow += element(a, n) * element(b, n);
  }
#pragma unroll
  for (int d = 1; d < 32; d *= 2) flow += __shfl_xor_sync(~0u, flow, d);
  if (me.lane == 0) m.flow[me.warp] = flow;
}

// One warp: dbeta = kappa + column sums of F, dg = sum_{t>=i} rho_t + sum_{s<i} inner_s + e^{G_C} <Z, S>.
template <int kKeys, int kValues>
__device__ __forceinline__ void store_numbers(
    const Memory<kKeys, kValues>& m,
    const DeltaChunks& p,
    const Chunk& c,
    const Heads& h,
    const Place& me
) {
  const auto token = [&](int t, float& rho, float& inner, float& dbeta) {
    rho = 0.f;
    float kappa = 0.f, column = 0.f;
#pragma unroll
    for (int n = 0; n < kKeys / 64; ++n) {
      rho += m.rho[n][t] + m.rho[2 + n][t];
      kappa += m.kappa[n][t];
    }
#pragma unroll
    for (int w = 0; w < 8; ++w) column += m.F_columns[w][t];
    dbeta = kappa + column + m.F_same[t];
    inner = m.b[t] * (kappa + column) - (m.F_rows[0][t] + m.F_rows[1][t]);
  };
  Pair rho, inner, dbeta;
  token(2 * me.lane, rho.a, inner.a, dbeta.a);
  token(2 * me.lane + 1, rho.b, inner.b, dbeta.b);
  const Pair later = sums_from(rho, me), earlier = sums_before(inner, me);
  float past = 0.f;
#pragma unroll
  for (int w = 0; w < kBlock / 32; ++w) past += m.flow[w];
  past *= m.kept;  // e^{G_C} <Z, S>
  const int64_t token_head = (c.b * p.sequences.T + c.first + 2 * me.lane) * p.H + h.own;
  if (2 * me.lane < c.rows) {
    p.dbeta[token_head] = dbeta.a;
    if (p.dg) p.dg[token_head] = later.a + earlier.a + past;
  }
  if (2 * me.lane + 1 < c.rows) {
    p.dbeta[token_head + p.H] = dbeta.b;
    if (p.dg) p.dg[token_head + p.H] = later.b + earlier.b + past;
  }
}

// A block owns one chunk of one head. Group 0 computes dP and its sums, then dq of the first 64 keys. Group 1 computes D, then
// dq of the other keys. Groups 2 and 3 compute dk of the same keys, and begin with the terms that need no scores.
template <int kKeys, int kValues>
__global__ void __launch_bounds__(kBlock, 1)
    gradient_kernel(const __grid_constant__ DeltaChunks p) {
  HORNER_DYNAMIC_MEMORY(memory);
  const uint32_t aside = (1024 - shared_address(memory) % 1024) % 1024;  // aligns the tiles
  Memory<kKeys, kValues>& m = *reinterpret_cast<Memory<kKeys, kValues>*>(memory + aside);
  const Place me(int(threadIdx.x));
  const Reader reader(me);
  const unsigned slot = blockIdx.x / unsigned(p.H);
  const Heads h(int(blockIdx.x % unsigned(p.H)), 1);
  const Chunk c = chunk_at(p.sequences, slot);
  if (c.rows <= 0) return;
  load(m, p, c, h, slot, me);
  copy_wait<0>();
  show_tiles();
  __syncthreads();
  const Part<kKeys> own(me);
  if (own.group < 2) {
    compute_dq(m, p, c, h, own, reader, me);
  } else {
    compute_dk(m, p, c, h, own, reader, me);
  }
  sum_flow(m, me);
  __syncthreads();
  if (me.warp == 0) store_numbers(m, p, c, h, me);
}

template <int kKeys, int kValues>
cudaError_t run(const DeltaChunks& p, cudaStream_t stream) {
  return launch(
      gradient_kernel<kKeys, kValues>,
      p.sequences.slots() * p.H,
      kBlock,
      sizeof(Memory<kKeys, kValues>) + 1024,
      stream,
      p
  );
}

}  // namespace

cudaError_t delta_gradient(const DeltaChunks& p, cudaStream_t stream) {
  if (p.keys() == 64) {
    return p.values() == 64 ? run<64, 64>(p, stream) : run<64, 128>(p, stream);
  }
  return p.values() == 64 ? run<128, 64>(p, stream) : run<128, 128>(p, stream);
}

}  // namespace horner::cuda
