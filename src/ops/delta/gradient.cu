// `delta`: gradients of q, k, g and beta, every chunk by itself (chunked.cuh).
#include "cuda/launch.cuh"
#include "ops/delta/chunked.cuh"

namespace horner::cuda {
namespace {

constexpr int kBlock = 512;  // 16 warps: a stripe of 16 tokens and 32 columns each

using Part = Columns<4>;  // 16 x 32

template <int kKeys, int kValues>
struct Memory {
  unsigned char q[kKeys / 64][kTileBytes], k[kKeys / 64][kTileBytes];
  unsigned char out[kValues / 64][kTileBytes], dv[kValues / 64][kTileBytes];
  unsigned char error[kValues / 64][kTileBytes];
  unsigned char S[kKeys / 64][kValues * 128], Z[kKeys / 64][kValues * 128];  // transposed
  unsigned char dP[kTileBytes], D[kTileBytes];
  float G[64], b[64], read[64], until[64], kept;  // log2, e^G, e^{G_C-G}, e^{G_C}
  float F_columns[8][64], F_rows[4][64], F_same[64];
  float rho[8][64], kappa[4][64];  // by 32 keys: q.x, then k.z; k.y
  float flow[16];                  // <Z, S>
};

__device__ float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// A quarter of 128 columns, or half of 64: of which tile, from which 16 of its columns on.
struct Quarter {
  int n;
  __device__ int tile() const { return n / 2; }
  __device__ int first() const { return n % 2 * 2; }
};

// d += rows of x (64 kTiles columns) times rows of y.
template <int kTiles>
__device__ void multiply_rows(Part& d, uint32_t x, uint32_t y, int stripe, const Reader& reader) {
#pragma unroll 4
  for (int j = 0; j < 4 * kTiles; ++j) {
    uint32_t a[4];
    load_rows(a, x, stripe, j, reader);
    add_rows(d, a, y, j, 0, reader);
  }
}
// d += rows of x (kRows columns) times columns of a state.
template <int kRows>
__device__ void multiply_state(
    Part& d, uint32_t x, uint32_t state, int stripe, int first, const Reader& reader
) {
#pragma unroll 4
  for (int j = 0; j < kRows / 16; ++j) {
    uint32_t a[4];
    load_rows(a, x, stripe, j, reader);
    add_columns(d, a, state, j, 3, reader, first);
  }
}
// d += rows of a lower triangle times y, or of its transpose.
__device__ void multiply_lower(
    Part& d, uint32_t x, uint32_t y, int stripe, int first, const Reader& reader
) {
#pragma unroll 1
  for (int j = 0; j <= stripe; ++j) {
    uint32_t a[4];
    load_rows(a, x, stripe, j, reader);
    add_columns(d, a, y, j, 3, reader, first);
  }
}
__device__ void multiply_upper(
    Part& d, uint32_t x, uint32_t y, int stripe, int first, const Reader& reader
) {
#pragma unroll 1
  for (int j = stripe; j < 4; ++j) {
    uint32_t a[4];
    load_columns(a, x, stripe, j, reader);
    add_columns(d, a, y, j, 3, reader, first);
  }
}

// Rows times a factor each, and their products with the rows of a tile: x_t.d_t, into sums.
__device__ void weigh_rows(
    Part& d,
    const float* factors,
    float scale,
    const unsigned char* tile,
    int first,
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
    for (int n = 0; n < 4; ++n) {
      const uint32_t two =
          *reinterpret_cast<const uint32_t*>(tile + tile_offset(t, 2 * first + n) + 4 * me.i);
      float* x = d[n] + 2 * half;
      x[0] *= f, x[1] *= f;
      sum += x[0] * low_half(two) + x[1] * high_half(two);
    }
    sum = quad_sum(sum);
    if (me.i == 0) sums[t] = sum;
  }
}

__device__ void store_part(
    const Part& d,
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
    for (int j = 0; j < 2; ++j) {
      uint32_t a[4];
      round_columns(a, d, j);
      store_sixteen(row + 16 * j, a[half], a[2 + half], valid, width - column - 16 * j, me);
    }
    row += 8 * to.t;
  }
}

// W = M * W b, the gradient of the scores, into its tile, 32 columns of it; sums of F = M * X W over rows, times b, and
// columns, and F_tt apart. X are the scores themselves. Strict: s < t, and negative.
template <int kKeys, int kValues>
__device__ void score_gradient(
    Memory<kKeys, kValues>& m,
    const Part& X,
    const Part& W,
    unsigned char* tile,
    float scale,
    bool strict,
    int stripe,
    int half_columns,
    const Place& me
) {
  const float late[2] = {m.G[16 * stripe + me.r], m.G[16 * stripe + me.r + 8]};
  float rows[2] = {};
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int first = 32 * half_columns + 8 * n + 2 * me.i;
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
      *reinterpret_cast<uint32_t*>(tile + tile_offset(t, 4 * half_columns + n) + 4 * me.i) =
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
    if (me.i == 0) m.F_rows[2 * strict + half_columns][16 * stripe + me.r + 8 * half] = sum;
  }
}

// Two tokens of a lane, and their sums before and after.
struct Pair {
  float a, b;
};
__device__ Pair sums_before(Pair x, const Place& me) {
  float sum = x.a + x.b;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const float other = __shfl_up_sync(~0u, sum, d);
    if (me.lane >= d) sum += other;
  }
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

// A block owns one chunk of one head. First half of the warps makes dP and its sums, the other D; then a warp makes 32
// columns of dq and dk of its stripe, or with 64 keys, of one of the two.
template <int kKeys, int kValues>
__global__ void __launch_bounds__(kBlock, 1)
    gradient_kernel(const __grid_constant__ DeltaChunks p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Memory<kKeys, kValues>& m = *reinterpret_cast<Memory<kKeys, kValues>*>(memory);
  const Place me(int(threadIdx.x));
  const Reader reader(me);
  const unsigned slot = blockIdx.x / unsigned(p.H);
  const Heads h(int(blockIdx.x % unsigned(p.H)), 1);
  const Chunk c = chunk_at(p.sequences, slot);
  if (c.rows <= 0) return;
  const uint32_t qs = shared_address(m.q), ks = shared_address(m.k), dos = shared_address(m.out),
                 dvs = shared_address(m.dv), es = shared_address(m.error);
  load_chunk<kKeys / 64, kBlock>(qs, p.q, c, h, 0, p.K, me);
  load_chunk<kKeys / 64, kBlock>(ks, p.k, c, h, 0, p.K, me);
  load_chunk<kValues / 64, kBlock>(dos, p.out, c, h, 0, p.V, me);
  load_chunk<kValues / 64, kBlock>(dvs, p.dv, c, h, 0, p.V, me);
  load_chunk<kValues / 64, kBlock>(es, p.error, c, h, 0, p.V, me);
  copy_commit();
  const int64_t state = (int64_t(slot) * p.H + h.own) * kKeys * kValues;
  load_matrix<kKeys / 64, kValues, kBlock>(
      shared_address(m.S), static_cast<const __nv_bfloat16*>(p.S) + state, me
  );
  load_matrix<kKeys / 64, kValues, kBlock>(
      shared_address(m.Z), static_cast<const __nv_bfloat16*>(p.Z) + state, me
  );
  copy_commit();
  if (me.warp == 0) {
    const Numbers x = load_numbers(p, c, h, me);
    const Since d = sum_decays(x.g, me);
    reinterpret_cast<float2*>(m.G)[me.lane] = d.G;
    reinterpret_cast<float2*>(m.b)[me.lane] = x.b;
    reinterpret_cast<float2*>(m.read)[me.lane] = {exp2_fast(d.G.x), exp2_fast(d.G.y)};
    reinterpret_cast<float2*>(m.until)[me.lane] = {
        exp2_fast(d.all - d.G.x), exp2_fast(d.all - d.G.y)};
    if (me.lane == 0) m.kept = exp2_fast(d.all);
  }
  copy_wait<1>();
  __syncthreads();

  const int stripe = me.warp % 4;
  {
    const int group = me.warp / 4 % 2, half = me.warp / 8;
    Part X = {}, W = {};
    multiply_rows<kKeys / 64>(X, group ? ks : qs, ks + half * 4096, stripe, reader);
    multiply_rows<kValues / 64>(W, group ? dvs : dos, es + half * 4096, stripe, reader);
    unsigned char* tile = group ? m.D : m.dP;
    score_gradient(m, X, W, tile, group ? -1.f : p.scale, group == 1, stripe, half, me);
  }
  copy_wait<0>();
  __syncthreads();

  const Quarter quarter{me.warp / 4 % (kKeys / 32)};
  const int tile = quarter.tile(), first = quarter.first();
  const uint32_t S = shared_address(m.S[tile]), Z = shared_address(m.Z[tile]);
  const uint32_t q = qs + tile * kTileBytes, k = ks + tile * kTileBytes;
  const uint32_t dP = shared_address(m.dP), D = shared_address(m.D);
  if (kKeys == 128 || me.warp < 8) {
    Part x = {};
    multiply_state<kValues>(x, dos, S, stripe, first, reader);
    weigh_rows(x, m.read, p.scale, m.q[tile], first, m.rho[quarter.n], stripe, me);
    multiply_lower(x, dP, k, stripe, first, reader);
    store_part(x, p.dq, c, h, 32 * quarter.n, p.K, stripe, me);
  }
  if (kKeys == 128 || me.warp >= 8) {
    Part x = {}, z = {};
    multiply_state<kValues>(x, es, Z, stripe, first, reader);
    weigh_rows(x, m.until, 1.f, m.k[tile], first, m.kappa[quarter.n], stripe, me);
    multiply_state<kValues>(z, dvs, S, stripe, first, reader);
    weigh_rows(z, m.read, -1.f, m.k[tile], first, m.rho[4 + quarter.n], stripe, me);
    const float b[2] = {m.b[16 * stripe + me.r], m.b[16 * stripe + me.r + 8]};
#pragma unroll
    for (int e = 0; e < 16; ++e) x[e / 4][e % 4] = x[e / 4][e % 4] * b[e / 2 % 2] + z[e / 4][e % 4];
    multiply_upper(x, dP, q, stripe, first, reader);
    multiply_lower(x, D, k, stripe, first, reader);
    multiply_upper(x, D, k, stripe, first, reader);
    store_part(x, p.dk, c, h, 32 * quarter.n, p.K, stripe, me);
  }
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
  __syncthreads();
  if (me.warp != 0) return;

  const auto token = [&](int t, float& rho, float& inner, float& dbeta) {
    rho = 0.f;
    float kappa = 0.f, column = 0.f;
#pragma unroll
    for (int n = 0; n < kKeys / 32; ++n) {
      rho += m.rho[n][t] + m.rho[4 + n][t];
      kappa += m.kappa[n][t];
    }
#pragma unroll
    for (int w = 0; w < 8; ++w) column += m.F_columns[w][t];
    dbeta = kappa + column + m.F_same[t];
    inner = m.b[t] * (kappa + column) -
            ((m.F_rows[0][t] + m.F_rows[1][t]) + (m.F_rows[2][t] + m.F_rows[3][t]));
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

template <int kKeys, int kValues>
cudaError_t run(const DeltaChunks& p, cudaStream_t stream) {
  return launch(
      gradient_kernel<kKeys, kValues>,
      p.sequences.slots() * p.H,
      kBlock,
      sizeof(Memory<kKeys, kValues>),
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
