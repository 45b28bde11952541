// `delta` with a decay per key: gradients of q, k, g and beta, every chunk by itself (per_key.cuh).
#include "cuda/key_gradients.cuh"
#include "cuda/launch.cuh"
#include "ops/delta/per_key/per_key.cuh"

namespace horner::cuda {
namespace {

constexpr int kBlock = 128;

// Where gradients come from: the state that enters, the other stripe of the half of the chunk, the other half, the
// gradient of the state that leaves.
enum Source { kEntering, kNear, kFar, kLeaving };

// Rows of 16 tokens of one slice: matrices of 8 x 8, which are read transposed.
using StripeRows = uint32_t[8][32];

// What the warps share of one slice; two of them, so that the next may begin while the last is read.
struct SliceSums {
  float totals[kStripes][kSlice];    // log2-decays
  float flows[4][kStripes][kSlice];  // of each Source
  float through[kStripes][kSlice];   // rowsum(S * Z) in four parts, by place
};

// S and Z come a slice at a time, the next while one is read: then two blocks fit on a multiprocessor, and one computes
// while the other loads. A row of `states` has the keys of S, then those of Z.
template <int kValues>
struct Memory {
  unsigned char out[kValues / 64][kTileBytes], dv[kValues / 64][kTileBytes];
  unsigned char error[kValues / 64][kTileBytes];
  unsigned char states[2][kValues * 128];  // transposed
  StripeRows q[2][2], k[2][kStripes];      // of levels 16 and 32; of q the late stripes
  uint4 W[3][kBlock], U[3][kBlock];        // near and far parts of a thread: registers are scarce
  SliceSums sums[2];
  float b[64];
};

// d[n] += rows[n] of this stripe (tokens by values) times S or Z (values by keys): tokens by keys of the slice. first: its
// unit in a row of states.
template <int kValues, int kCount>
__device__ void multiply_slice(
    Values* const (&d)[kCount],
    const uint32_t (&rows)[kCount],
    uint32_t states,
    int first,
    const Place& me
) {
  const uint32_t state = states + me.lane % 16 * 128;
  const int swizzle = me.lane % 8, row = 16 * me.warp + me.lane % 16;
  const uint32_t units[2] = {
      uint32_t((first + me.lane / 16) ^ swizzle) << 4,
      uint32_t((first + 2 + me.lane / 16) ^ swizzle) << 4};
  const uint32_t own = tile_offset(row, me.lane / 16);
#pragma unroll 2
  for (int step = 0; step < kValues / 16; ++step) {
    uint32_t b[2][4];
#pragma unroll
    for (int j = 0; j < 2; ++j) load_matrices_transposed(b[j], state + 2048 * step + units[j]);
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      uint32_t a[4];
      load_matrices(a, rows[n] + step / 4 * kTileBytes + (own ^ (step % 4 * 32)));
#pragma unroll
      for (int j = 0; j < 4; ++j)
        multiply((*d[n])[j], a, b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1]);
    }
  }
}
__device__ void scale_values(Values& d, float factor) {
#pragma unroll
  for (int e = 0; e < 16; ++e) d[e / 4][e % 4] *= factor;
}

// Of a slice: gradients of q and k, of g by the flows inside the stripe, and of b.
struct Gradients {
  Values q = {}, k = {}, g = {};
  float b[2];  // of the tokens
  float db[2];

  // Of token r + 8 h: y comes by W or a state, z by U. Where it is late, y is of q and z of k as it is read; where it is
  // early, both are of k as it is written, which counts times b. flow: what flows from the token.
  __device__ void add(
      Values& flow,
      const Values& y,
      const Values& z,
      const Values& factor,
      const Raw& x,
      int h,
      bool late
  ) {
    const float weight = late ? 1.f : b[h], early = late ? 0.f : 1.f, is_late = late ? 1.f : 0.f;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int j = n / 2, e = 2 * h + n % 2;
      const float of_q = is_late * y[j][e] * factor[j][e];
      const float of_k = (z[j][e] + early * y[j][e]) * factor[j][e];
      const float with_k = of_k * element(x.k[h], n);
      q[j][e] += of_q;
      k[j][e] += weight * of_k;
      flow[j][e] = weight * with_k + of_q * element(x.q[h], n);
      db[h] += early * with_k;
    }
  }
  // The same of both tokens, where the whole stripe is late, or early.
  __device__ void add_late(
      Values& flow, const Values& y, const Values& z, const Values& factor, const Raw& x
  ) {
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const int j = n / 4, e = n % 4, key = 2 * j + e % 2;
      const float of_q = y[j][e] * factor[j][e], of_k = z[j][e] * factor[j][e];
      q[j][e] += of_q;
      k[j][e] += of_k;
      flow[j][e] = of_k * element(x.k[e / 2], key) + of_q * element(x.q[e / 2], key);
    }
  }
  __device__ void add_early(
      Values& flow, const Values& y, const Values& z, const Values& factor, const Raw& x
  ) {
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const int j = n / 4, e = n % 4;
      const float of_k = (y[j][e] + z[j][e]) * factor[j][e];
      const float with_k = of_k * element(x.k[e / 2], 2 * j + e % 2);
      k[j][e] += b[e / 2] * of_k;
      flow[j][e] = b[e / 2] * with_k;
      db[e / 2] += with_k;
    }
  }
};

// Sums of flows over tokens are products with patterns of ones, of operands that are sums of two bf16.
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

// Rows of a level: q or k where it is late, b k where it is early.
__device__ void level_rows(
    Fragment& m, const Values& factor, int h, bool late, uint4 row, uint4 key, float b
) {
  Values own;
#pragma unroll
  for (int n = 0; n < 8; ++n)
    own[n / 2][2 * h + n % 2] = factor[n / 2][2 * h + n % 2] * (late ? 1.f : b);
  m.set(h, either(late, row, key), own);
}

// Near and far parts to memory.
__device__ void park(uint4 (&to)[3][kBlock], const Symmetric& w, const Place& me) {
  to[0][me.thread] = {w.near[0], w.near[1], w.near[2], w.near[3]};
#pragma unroll
  for (int n = 0; n < 2; ++n)
    to[1 + n][me.thread] = {w.far[n][0], w.far[n][1], w.far[n][2], w.far[n][3]};
}

// A level inside the stripe; kEight: it is 8.
template <bool kEight>
__device__ void add_level(
    Gradients& grad,
    const Symmetric& W,
    const Symmetric& U,
    const Values& factor,
    const Raw& x,
    int half,
    const Place& me
) {
  const bool late[2] = {!kEight && me.r & half, kEight || me.r & half};
  Values both[2] = {}, flow;
#pragma unroll
  for (int which = 0; which < 2; ++which) {  // q with k by W, k with k by U
    Fragment m;
#pragma unroll
    for (int h = 0; h < 2; ++h)
      level_rows(m, factor, h, late[h], which ? x.k[h] : x.q[h], x.k[h], grad.b[h]);
    const Symmetric& w = which ? U : W;
    if constexpr (!kEight) {
      const uint2 a = w.part(half, me);
      multiply_level(both[which], a.x, 0u, 0u, a.y, m);
    } else {
      multiply_level(both[which], 0u, w.own[1], w.own[2], 0u, m);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) grad.add(flow, both[0], both[1], factor, x, h, late[h]);
  __syncwarp();
  Flow(flow).sum(grad.g, level_pattern(half, true, me).a);
}

__device__ void store_rows(StripeRows& to, const Fragment& m, const Place& me) {
#pragma unroll
  for (int e = 0; e < 8; ++e) to[e][me.lane] = m.x[e % 2][e / 2];
}
// d += W M of such rows M.
__device__ void multiply_stripe(
    Values& d, const uint4& w, const StripeRows& rows, const Place& me
) {
  const uint32_t a[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    uint32_t b[4];
    load_matrices_transposed(b, shared_address(rows[2 * j]) + 16 * me.lane);
    multiply(d[j], a, b[0], b[1]);
    multiply(d[j + 1], a, b[2], b[3]);
  }
}

// Of a late stripe at level 16 (1 and 3) or 32 (2 and 3).
template <int kHalf>
__device__ int late_place(int stripe) {
  return kHalf == 16 ? stripe / 2 : stripe % 2;
}
// Rows of level 16 or 32 of this stripe to where the others find them.
template <int kHalf, int kValues>
__device__ void share_rows(
    Memory<kValues>& m,
    const SliceSums& sums,
    const Values& since,
    const Raw& x,
    const Gradients& grad,
    const Place& me
) {
  const bool late = late_stripe<kHalf>(me);
  Values factor;
  Factors(to_middle<kHalf>(me), sums.totals[0], me).powers(factor, since);
  Fragment rows;
#pragma unroll
  for (int h = 0; h < 2; ++h) level_rows(rows, factor, h, late, x.k[h], x.k[h], grad.b[h]);
  store_rows(m.k[kHalf / 32][me.warp], rows, me);
  if (!late) return;
  rows.set(0, x.q[0], factor);
  rows.set(1, x.q[1], factor);
  store_rows(m.q[kHalf / 32][late_place<kHalf>(me.warp)], rows, me);
}

// W M of the stripes of the other half at level 16 or 32: y by W of q and k, z by U of k and k.
template <int kHalf, int kValues>
__device__ void multiply_others(Values& y, Values& z, const Memory<kValues>& m, const Place& me) {
#pragma unroll
  for (int n = 0; n < kHalf / 16; ++n) {
    const int stripe = me.warp ^ (kHalf / 16 + n), part = kHalf == 16 ? 0 : 1 + n;
    const StripeRows& keys = m.k[kHalf / 32][stripe];
    const bool late = late_stripe<kHalf>(me);  // then the other is early: its rows are of k
    const StripeRows& queries = m.q[kHalf / 32][late_place<kHalf>(stripe)];
    multiply_stripe(y, m.W[part][me.thread], late ? keys : queries, me);
    multiply_stripe(z, m.U[part][me.thread], keys, me);
  }
}

// What comes from outside the stripe; total: its flow through the stripe.
__device__ void add_source(
    Gradients& grad,
    const Values& y,
    const Values& z,
    const Factors& factors,
    const Values& since,
    const Raw& x,
    float* total,
    const Place& me
) {
  Values factor, flow;
  factors.powers(factor, since);
  if (factors.late)
    grad.add_late(flow, y, z, factor, x);
  else
    grad.add_early(flow, y, z, factor, x);
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

// rowsum(S * Z) of a slice over a fourth of the values.
template <int kValues>
__device__ void sum_through(float* through, const unsigned char* states, const Place& me) {
  float sum[8] = {};
#pragma unroll 2
  for (int v = 8 * me.warp + me.r; v < kValues; v += 32) {
    const uint4 a = *reinterpret_cast<const uint4*>(states + tile_offset(v, me.i));
    const uint4 b = *reinterpret_cast<const uint4*>(states + tile_offset(v, 4 + me.i));
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

// The flows of other stripes, and of what passes through the chunk, into dg.
__device__ void add_outside(Gradients& grad, const SliceSums& m, const Place& me) {
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

// The states of a slice of a chunk: `state` is the place of its first element.
template <int kKeys, int kValues>
__device__ void load_states(
    unsigned char (&to)[kValues * 128],
    const DeltaChunks& p,
    int64_t state,
    int slice,
    const Place& me
) {
  const int unit = me.thread % 8, row = me.thread / 8;
  const auto* from = static_cast<const __nv_bfloat16*>(unit < 4 ? p.S : p.Z) + state;
  from += row * kKeys + kSlice * slice + 8 * (unit % 4);
  const uint32_t first = shared_address(to) + tile_offset(row, unit);
#pragma unroll
  for (int v = 0; v < kValues; v += kBlock / 8) copy_async(first + v * 128, from + v * kKeys, true);
}

// do, dv and E, and then the states of the first slice.
template <int kKeys, int kValues>
__device__ void load_block(
    Memory<kValues>& m,
    const DeltaChunks& p,
    const Chunk& c,
    const Heads& h,
    int64_t state,
    const Place& me
) {
  load_chunk<kValues / 64, kBlock>(shared_address(m.out), p.out, c, h, 0, p.V, me);
  load_chunk<kValues / 64, kBlock>(shared_address(m.dv), p.dv, c, h, 0, p.V, me);
  load_chunk<kValues / 64, kBlock>(shared_address(m.error), p.error, c, h, 0, p.V, me);
  copy_commit();
  load_states<kKeys, kValues>(m.states[0], p, state, 0, me);
  copy_commit();
  if (me.thread < 64)
    m.b[me.thread] = me.thread < c.rows ? at<float>(p.beta, c, h)[me.thread * p.beta.t] : 0.f;
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
  add_level<false>(grad, W, U, factor, x, 1, me);
#pragma unroll 1
  for (int half = 2; half < 8; half *= 2) {
    level_factors(factor, half, d, x, narrow, me);
    add_level<false>(grad, W, U, factor, x, half, me);
  }
  level_factors(factor, 8, d, x, narrow, me);
  add_level<true>(grad, W, U, factor, x, 8, me);
  d.sum(since, up_to(me));
}

// Terms from each Source.
template <int kValues>
__device__ void add_sources(
    Gradients& grad,
    Memory<kValues>& m,
    int buffer,
    const Values& since,
    const Raw& x,
    float scale,
    const Place& me
) {
  SliceSums& sums = m.sums[buffer];
  const uint32_t states = shared_address(m.states[buffer]);
#pragma unroll 1
  for (int source = kEntering; source <= kLeaving; ++source) {
    Values y = {}, z = {};
    DecayPath path = to_start(me);
    if (source == kEntering) {
      const uint32_t rows[2] = {shared_address(m.out), shared_address(m.dv)};
      multiply_slice<kValues>({&y, &z}, rows, states, 0, me);
      scale_values(y, scale);
      scale_values(z, -1.f);
    } else if (source == kLeaving) {
      path = to_end(me);
      multiply_slice<kValues>({&y}, {shared_address(m.error)}, states, 4, me);
    } else if (source == kNear) {
      path = to_middle<16>(me);
      multiply_others<16>(y, z, m, me);
    } else {
      path = to_middle<32>(me);
      multiply_others<32>(y, z, m, me);
    }
    const Factors factors(path, sums.totals[0], me);
    add_source(grad, y, z, factors, since, x, sums.flows[source][me.warp], me);
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

// The sums over keys of two tokens: four lanes have parts of each.
__device__ void store_betas(
    const float (&db)[2], const DeltaChunks& p, const Chunk& c, const Heads& h, const Place& me
) {
  float* to = p.dbeta + (c.b * p.sequences.T + c.first) * p.H + h.own;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float sum = quad_sum(db[n]);
    const int t = 16 * me.warp + me.r + 8 * n;
    if (me.i == 0 && t < c.rows) to[t * p.H] = sum;
  }
}

// A block owns one chunk of one head, a warp one stripe.
template <int kKeys, int kValues>
__global__ void __launch_bounds__(kBlock, 2)
    key_gradient_kernel(const __grid_constant__ DeltaChunks p) {
  HORNER_DYNAMIC_MEMORY(memory);
  auto& m = *reinterpret_cast<Memory<kValues>*>(memory);
  const unsigned slot = blockIdx.x / unsigned(p.H);
  const Heads h(int(blockIdx.x % unsigned(p.H)), 1);
  const Chunk c = chunk_at(p.sequences, slot);
  if (c.rows <= 0) return;
  const int64_t state = (int64_t(slot) * p.H + h.own) * kKeys * kValues;
  Symmetric W, U;
  {
    const Place me(int(threadIdx.x));
    load_block<kKeys>(m, p, c, h, state, me);
    prefetch_slices(p, c, h, me);
    copy_wait<1>();
    __syncthreads();
    W.template compute<kValues>(shared_address(m.error), shared_address(m.out), p.scale, me);
    park(m.W, W, me);
    U.template compute<kValues>(shared_address(m.error), shared_address(m.dv), -1.f, me);
    park(m.U, U, me);
  }
  float db[2] = {};
#pragma unroll 1
  for (int s = 0; s < kKeys / kSlice; ++s) {
    const Place me(opaque(int(threadIdx.x)));
    SliceSums& sums = m.sums[s & 1];
    Gradients grad;
    grad.b[0] = m.b[16 * me.warp + me.r], grad.b[1] = m.b[16 * me.warp + me.r + 8];
    grad.db[0] = db[0], grad.db[1] = db[1];
    Raw x;
    SliceRows(p, c, h, me).load(x, p, c.rows, s, me);
    Values since;
    add_levels(grad, since, W, U, x, p.narrow_g, me);
    float total[8];
    stripe_total(total, since, me);
    if (me.r == 0) store_eight(sums.totals[me.warp] + 8 * me.i, total);
    copy_wait<0>();
    __syncthreads();  // the states of this slice are there, and no others are read any more
    if (s + 1 < kKeys / kSlice)
      load_states<kKeys, kValues>(m.states[(s + 1) & 1], p, state, s + 1, me);
    copy_commit();
    sum_through<kValues>(sums.through[0], m.states[s & 1], me);
    share_rows<16>(m, sums, since, x, grad, me);
    share_rows<32>(m, sums, since, x, grad, me);
    __syncthreads();
    add_sources(grad, m, s & 1, since, x, p.scale, me);
    add_same(grad, W, x);
    store_keys(grad.q, 1.f, p.dq, false, p, c, h, s, me);
    store_keys(grad.k, 1.f, p.dk, false, p, c, h, s, me);
    db[0] = grad.db[0], db[1] = grad.db[1];
    __syncthreads();
    add_outside(grad, sums, me);
    store_keys(grad.g, 1.f, p.dg_keys, !p.narrow_g, p, c, h, s, me);
  }
  store_betas(db, p, c, h, Place(int(threadIdx.x)));
}

template <int kKeys, int kValues>
cudaError_t run(const DeltaChunks& p, cudaStream_t stream) {
  constexpr size_t bytes = sizeof(Memory<kValues>);
  static_assert(bytes <= 113 * 1024);  // two blocks on a multiprocessor
  const int64_t blocks = p.sequences.slots() * p.H;
  return launch(key_gradient_kernel<kKeys, kValues>, blocks, kBlock, bytes, stream, p);
}

}  // namespace

cudaError_t delta_key_gradient(const DeltaChunks& p, cudaStream_t stream) {
  if (p.keys() == 64) return p.values() == 64 ? run<64, 64>(p, stream) : run<64, 128>(p, stream);
  return p.values() == 64 ? run<128, 64>(p, stream) : run<128, 128>(p, stream);
}

}  // namespace horner::cuda
