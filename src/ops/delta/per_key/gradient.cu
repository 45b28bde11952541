// `delta` with a decay per key: gradients of q, k, g and beta, every chunk by itself (per_key.cuh).
#include "cuda/key_gradients.cuh"
#include "cuda/launch.cuh"
#include "ops/delta/per_key/per_key.cuh"

namespace horner::cuda {
namespace {

constexpr int kBlock = 256, kGroups = 2;  // groups of four warps; a group owns every second slice

// Where gradients of a stripe come from: the entering state, the other stripe of its half chunk, the other half chunk, the
// gradient of the leaving state.
enum Source { kEntering, kNear, kFar, kLeaving };

// What the warps of a group share for one slice.
struct SliceMemory {
  uint4 q[2][256], k[2][256];        // rows of levels 16 and 32: of q and k
  float totals[kStripes][kSlice];    // log2-decays of each stripe
  float flows[4][kStripes][kSlice];  // flow from each Source
  float through[kStripes][kSlice];   // rowsum(S * Z) in four parts, by place
};

template <int kKeys, int kValues>
struct Memory {
  unsigned char S[kKeys / 64][kValues * 128], Z[kKeys / 64][kValues * 128];  // transposed
  unsigned char out[kValues / 64][kTileBytes], dv[kValues / 64][kTileBytes];
  unsigned char error[kValues / 64][kTileBytes];
  SliceMemory slice[kGroups][2];  // two: the next slice can start while this one is read
  float b[64], db[kGroups][64];
};

// d = rows of this stripe (tokens by values) times a state (values by keys): tokens by the keys of a slice.
template <int kValues>
__device__ void multiply_slice(
    Values& d, uint32_t rows, uint32_t state, float factor, int slice, const Place& me
) {
  clear(d);
  const uint32_t tile = state + slice / 2 * kValues * 128;
#pragma unroll 1
  for (int step = 0; step < kValues / 16; ++step) {
    uint32_t a[4], b[4];
    const int row = 16 * me.warp + me.lane % 16, unit = step % 4 * 2 + me.lane / 16;
    load_matrices(a, rows + step / 4 * kTileBytes + tile_offset(row, unit));
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      const int place = slice % 2 * 4 + j + me.lane / 16;
      load_matrices_transposed(b, tile + tile_offset(16 * step + me.lane % 16, place));
      multiply(d[j], a, b[0], b[1]);
      multiply(d[j + 1], a, b[2], b[3]);
    }
  }
#pragma unroll
  for (int e = 0; e < 16; ++e) d[e / 4][e % 4] *= factor;
}

// Gradients of q, k, g and b for one slice; of g only the flows inside the stripe. A term is a part of the gradient of q (late
// rows), of k that reads (late rows), or of k that writes, which is multiplied by b (early rows).
struct Gradients {
  Values q = {}, k = {}, g = {};
  float b[2];  // db of the two tokens
  float db[2];

  // Adds a term of token r + 8 h. flow: x term, what flows from this token.
  __device__ void add_query(Values& flow, const Values& term, const Raw& x, int h) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float y = term[n / 2][2 * h + n % 2];
      q[n / 2][2 * h + n % 2] += y;
      flow[n / 2][2 * h + n % 2] += y * element(x.q[h], n);
    }
  }
  __device__ void add_read(Values& flow, const Values& term, const Raw& x, int h) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float y = term[n / 2][2 * h + n % 2];
      k[n / 2][2 * h + n % 2] += y;
      flow[n / 2][2 * h + n % 2] += y * element(x.k[h], n);
    }
  }
  __device__ void add_written(Values& flow, const Values& term, const Raw& x, int h) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float y = term[n / 2][2 * h + n % 2], with_k = y * element(x.k[h], n);
      k[n / 2][2 * h + n % 2] += b[h] * y;
      flow[n / 2][2 * h + n % 2] += b[h] * with_k;
      db[h] += with_k;
    }
  }
};

__device__ void times(Values& y, const Values& factor) {
#pragma unroll
  for (int e = 0; e < 16; ++e) y[e / 4][e % 4] *= factor[e / 4][e % 4];
}

// Flows as operands, each the sum of two bf16. Their sums over tokens are products with patterns of ones.
struct Flow {
  uint32_t high[2][4], low[2][4];
  __device__ explicit Flow(const Values& x) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int h = e / 4, j = e % 4;
      const float a = x[j][2 * h], b = x[j][2 * h + 1];
      const uint32_t both = pack(a, b);
      high[h][j] = transposed(both);
      low[h][j] = transposed(pack(a - low_half(both), b - high_half(both)));
    }
  }
  __device__ void sum(Values& d, const uint32_t (&a)[4]) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      multiply(d[j], a, high[0][j], high[1][j]);
      multiply(d[j], a, low[0][j], low[1][j]);
    }
  }
};

// Rows of a level: q or k of late tokens, b k of early ones.
__device__ void level_rows(
    Fragment& m, const Values& factor, int h, bool late, uint4 row, uint4 key, float b
) {
  Values own;
#pragma unroll
  for (int n = 0; n < 8; ++n)
    own[n / 2][2 * h + n % 2] = factor[n / 2][2 * h + n % 2] * (late ? 1.f : b);
  m.set(h, either(late, row, key), own);
}

// Adds a level inside the stripe.
__device__ void add_level(
    Gradients& grad,
    const Symmetric& W,
    const Symmetric& U,
    const Values& factor,
    const Raw& x,
    int half,
    const Place& me
) {
  Values flow = {};
#pragma unroll
  for (int which = 0; which < 2; ++which) {  // q with k by W, k with k by U
    Fragment m;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool late = late_token(half, h, me);
      level_rows(m, factor, h, late, which ? x.k[h] : x.q[h], x.k[h], grad.b[h]);
    }
    const Symmetric& w = which ? U : W;
    Values y = {};
    if (half < 8) {
      const uint2 a = w.part(half, me);
      multiply_level(y, a.x, 0u, 0u, a.y, m);
    } else {
      multiply_level(y, 0u, w.own[1], w.own[2], 0u, m);
    }
    times(y, factor);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (!late_token(half, h, me))
        grad.add_written(flow, y, x, h);
      else if (which)
        grad.add_read(flow, y, x, h);
      else
        grad.add_query(flow, y, x, h);
    }
  }
  __syncwarp();
  Flow(flow).sum(grad.g, level_pattern(half, true, me).a);
}

// Stores the rows of level 16 or 32 of this stripe for the other warps.
template <int kHalf>
__device__ void share_rows(
    SliceMemory& m, const Values& since, const Raw& x, const Gradients& grad, const Place& me
) {
  const bool late = late_stripe<kHalf>(me);
  Values factor;
  Factors(to_middle<kHalf>(me), m.totals[0], me).powers(factor, since);
  Fragment q, k;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    level_rows(q, factor, h, late, x.q[h], x.k[h], grad.b[h]);
    level_rows(k, factor, h, late, x.k[h], x.k[h], grad.b[h]);
  }
  q.store(m.q[kHalf / 32] + 64 * me.warp, me.lane);
  k.store(m.k[kHalf / 32] + 64 * me.warp, me.lane);
}

// Adds what comes from outside the stripe. y: pairs of q and k with W, or a state; z: pairs of k and k with U. total: the flow
// that crosses the whole stripe.
__device__ void add_source(
    Gradients& grad,
    Values& y,
    Values& z,
    const Factors& factors,
    const Values& since,
    const Raw& x,
    float* total,
    const Place& me
) {
  Values factor, flow = {};
  factors.powers(factor, since);
  times(y, factor);
  times(z, factor);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (factors.late) {
      grad.add_query(flow, y, x, h);
      grad.add_read(flow, z, x, h);
    } else {
      grad.add_written(flow, y, x, h);
      grad.add_written(flow, z, x, h);
    }
  }
  const Flow sums(flow);
  const Pattern across = factors.late ? flow_up_to(me) : flow_after(me);
  sums.sum(grad.g, across.a);
  Values all = {};
  constexpr uint32_t every[4] = {kOnes, kOnes, kOnes, kOnes};
  sums.sum(all, every);
  float of_keys[8];
#pragma unroll
  for (int n = 0; n < 8; ++n) of_keys[n] = all[n / 2][n % 2];
  if (me.r == 0) store_eight(total + 8 * me.i, of_keys);
}

// W M of the stripes of the other half at level 16 or 32.
template <int kHalf>
__device__ void multiply_others(
    Values& y,
    Values& z,
    const SliceMemory& m,
    const Symmetric& W,
    const Symmetric& U,
    const Place& me
) {
  Fragment other;
#pragma unroll
  for (int n = 0; n < kHalf / 16; ++n) {
    const int stripe = me.warp ^ (kHalf / 16 + n);
    const uint32_t(&w)[4] = kHalf == 16 ? W.near : W.far[n];
    const uint32_t(&u)[4] = kHalf == 16 ? U.near : U.far[n];
    other.load(m.q[kHalf / 32] + 64 * stripe, me.lane);
    multiply_level(y, w[0], w[1], w[2], w[3], other);
    other.load(m.k[kHalf / 32] + 64 * stripe, me.lane);
    multiply_level(z, u[0], u[1], u[2], u[3], other);
  }
}

// rowsum(S * Z) of a slice over a quarter of the values.
template <int kValues>
__device__ void sum_through(
    float* through, const unsigned char* S, const unsigned char* Z, int slice, const Place& me
) {
  float sum[8] = {};
#pragma unroll 2
  for (int v = 8 * me.warp + me.r; v < kValues; v += 32) {
    const uint32_t where = slice / 2 * kValues * 128 + tile_offset(v, slice % 2 * 4 + me.i);
    const uint4 a = *reinterpret_cast<const uint4*>(S + where);
    const uint4 b = *reinterpret_cast<const uint4*>(Z + where);
#pragma unroll
    for (int n = 0; n < 8; ++n) sum[n] += element(a, n) * element(b, n);
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int d = 4; d < 32; d *= 2) sum[n] += __shfl_xor_sync(~0u, sum[n], d);
  }
  if (me.r == 0) store_eight(through + kSlice * me.warp + 8 * me.i, sum);
}

// Adds to dg the flows of other stripes, and what flows through the whole chunk.
__device__ void add_outside(Gradients& grad, const SliceMemory& m, const Place& me) {
  float all[8] = {}, rest[8] = {};
#pragma unroll 1
  for (int w = 0; w < kStripes; ++w) {
    add_total(all, m.totals[0], w, me);
    if (w < me.warp) add_total(rest, m.flows[kLeaving][0], w, me);
    if (w > me.warp) add_total(rest, m.flows[kEntering][0], w, me);
  }
  if (me.warp == 1 || me.warp == 2) add_total(rest, m.flows[kFar][0], me.warp == 1 ? 0 : 3, me);
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const int place = 8 * (n / 2) + 2 * me.i + n % 2;
    float through = 0.f;
#pragma unroll
    for (int w = 0; w < kStripes; ++w) through += m.through[w][place];
    rest[n] += exp2_fast(all[n]) * through;
    grad.g[n / 2][n % 2] += rest[n];
    grad.g[n / 2][2 + n % 2] += rest[n];
  }
}

// All that a block reads but q, k and g, into shared memory: do, dv and E, and then the states.
template <int kKeys, int kValues>
__device__ void load_block(
    Memory<kKeys, kValues>& m, const DeltaChunks& p, unsigned slot, const Chunk& c, const Heads& h
) {
  const Place all(int(threadIdx.x));
  load_chunk<kValues / 64, kBlock>(shared_address(m.out), p.out, c, h, 0, p.V, all);
  load_chunk<kValues / 64, kBlock>(shared_address(m.dv), p.dv, c, h, 0, p.V, all);
  load_chunk<kValues / 64, kBlock>(shared_address(m.error), p.error, c, h, 0, p.V, all);
  copy_commit();
  const int64_t state = (int64_t(slot) * p.H + h.own) * kKeys * kValues;
  const auto load = [&](unsigned char(&to)[kKeys / 64][kValues * 128], const void* from) {
    const auto* first = static_cast<const __nv_bfloat16*>(from) + state;
    load_matrix<kKeys / 64, kValues, kBlock>(shared_address(to), first, all);
  };
  load(m.S, p.S);
  load(m.Z, p.Z);
  copy_commit();
  if (all.thread < 64)
    m.b[all.thread] = all.thread < c.rows ? at<float>(p.beta, c, h)[all.thread * p.beta.t] : 0.f;
}

// Terms from inside the stripe, and the sums of its log2-decays.
__device__ void add_levels(
    Gradients& grad,
    Values& since,
    const Symmetric& W,
    const Symmetric& U,
    const Raw& x,
    bool narrow,
    const Place& me
) {
  const Decays d(x, narrow);
  Values factor;
  level_factors(factor, 1, d, x, narrow, me);
  add_level(grad, W, U, factor, x, 1, me);
#pragma unroll 1
  for (int half = 2; half < 8; half *= 2) {
    level_factors(factor, half, d, x, narrow, me);
    add_level(grad, W, U, factor, x, half, me);
  }
  level_factors(factor, 8, d, x, narrow, me);
  add_level(grad, W, U, factor, x, 8, me);
  d.sum(since, up_to(me));
}

// Terms from each Source.
template <int kKeys, int kValues>
__device__ void add_sources(
    Gradients& grad,
    Memory<kKeys, kValues>& m,
    SliceMemory& own,
    const Symmetric& W,
    const Symmetric& U,
    const Values& since,
    const Raw& x,
    float scale,
    int slice,
    const Place& me
) {
#pragma unroll 1
  for (int source = kEntering; source <= kLeaving; ++source) {
    Values y = {}, z = {};
    DecayPath path = to_start(me);
    if (source == kEntering) {
      const uint32_t S = shared_address(m.S);
      multiply_slice<kValues>(y, shared_address(m.out), S, scale, slice, me);
      multiply_slice<kValues>(z, shared_address(m.dv), S, -1.f, slice, me);
    } else if (source == kLeaving) {
      path = to_end(me);
      multiply_slice<kValues>(y, shared_address(m.error), shared_address(m.Z), 1.f, slice, me);
    } else if (source == kNear) {
      path = to_middle<16>(me);
      multiply_others<16>(y, z, own, W, U, me);
    } else {
      path = to_middle<32>(me);
      multiply_others<32>(y, z, own, W, U, me);
    }
    const Factors factors(path, own.totals[0], me);
    add_source(grad, y, z, factors, since, x, own.flows[source][me.warp], me);
  }
}

// A token with itself: no decay.
__device__ void add_same(Gradients& grad, const Symmetric& W, const Raw& x) {
#pragma unroll
  for (int e = 0; e < 16; ++e) {
    const int of = e / 2 % 2, key = e / 4 * 2 + e % 2;
    const float k = element(x.k[of], key), q = W.same[of] * element(x.q[of], key);
    grad.q[e / 4][e % 4] += W.same[of] * grad.b[of] * k;
    grad.k[e / 4][e % 4] += grad.b[of] * q;
    grad.db[of] += k * q;
  }
}

// A block owns one chunk of one head, a group of four warps every second slice of its keys, a warp one stripe. Shared memory:
// S, Z, do, dv, E, and for each group the rows of levels 16 and 32 of one slice.
template <int kKeys, int kValues>
__global__ void __launch_bounds__(kBlock, 1)
    key_gradient_kernel(const __grid_constant__ DeltaChunks p) {
  HORNER_DYNAMIC_MEMORY(memory);
  auto& m = *reinterpret_cast<Memory<kKeys, kValues>*>(memory);
  const unsigned slot = blockIdx.x / unsigned(p.H);
  const Heads h(int(blockIdx.x % unsigned(p.H)), 1);
  const Chunk c = chunk_at(p.sequences, slot);
  if (c.rows <= 0) return;
  const int group = int(threadIdx.x) / 128;
  if (group == 0) prefetch_slices(p, c, h, Place(int(threadIdx.x)));
  load_block(m, p, slot, c, h);
  copy_wait<1>();
  __syncthreads();
  Symmetric W, U;
  {
    const Place me(int(threadIdx.x) % 128);
    W.template compute<kValues>(shared_address(m.error), shared_address(m.out), p.scale, me);
    U.template compute<kValues>(shared_address(m.error), shared_address(m.dv), -1.f, me);
  }
  copy_wait<0>();
  __syncthreads();
  float db[2] = {};
#pragma unroll 1
  for (int n = 0; n < kKeys / kSlice / kGroups; ++n) {
    const Place me(opaque(int(threadIdx.x)) % 128);
    const int s = kGroups * n + group;
    SliceMemory& own = m.slice[group][n & 1];
    Gradients grad;
    grad.b[0] = m.b[16 * me.warp + me.r], grad.b[1] = m.b[16 * me.warp + me.r + 8];
    grad.db[0] = db[0], grad.db[1] = db[1];
    Raw x;
    SliceRows(p, c, h, me).load(x, p, c.rows, s, me);
    Values since;
    add_levels(grad, since, W, U, x, p.narrow_g, me);
    float total[8];
    stripe_total(total, since, me);
    if (me.r == 0) store_eight(own.totals[me.warp] + 8 * me.i, total);
    sum_through<kValues>(own.through[0], m.S[0], m.Z[0], s, me);
    __syncthreads();
    share_rows<16>(own, since, x, grad, me);
    share_rows<32>(own, since, x, grad, me);
    __syncthreads();
    add_sources(grad, m, own, W, U, since, x, p.scale, s, me);
    add_same(grad, W, x);
    store_keys(grad.q, 1.f, p.dq, false, p, c, h, s, me);
    store_keys(grad.k, 1.f, p.dk, false, p, c, h, s, me);
    db[0] = grad.db[0], db[1] = grad.db[1];
    __syncthreads();
    add_outside(grad, own, me);
    store_keys(grad.g, 1.f, p.dg_keys, !p.narrow_g, p, c, h, s, me);
  }
  const Place me(int(threadIdx.x) % 128);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float sum = quad_sum(db[n]);
    if (me.i == 0) m.db[group][16 * me.warp + me.r + 8 * n] = sum;
  }
  __syncthreads();
  const int t = int(threadIdx.x);
  if (t < c.rows)
    p.dbeta[(c.b * p.sequences.T + c.first + t) * p.H + h.own] = m.db[0][t] + m.db[1][t];
}

template <int kKeys, int kValues>
cudaError_t run(const DeltaChunks& p, cudaStream_t stream) {
  const size_t bytes = sizeof(Memory<kKeys, kValues>);
  const int64_t blocks = p.sequences.slots() * p.H;
  return launch(key_gradient_kernel<kKeys, kValues>, blocks, kBlock, bytes, stream, p);
}

}  // namespace

cudaError_t delta_key_gradient(const DeltaChunks& p, cudaStream_t stream) {
  if (p.keys() == 64) return p.values() == 64 ? run<64, 64>(p, stream) : run<64, 128>(p, stream);
  return p.values() == 64 ? run<128, 64>(p, stream) : run<128, 128>(p, stream);
}

}  // namespace horner::cuda
