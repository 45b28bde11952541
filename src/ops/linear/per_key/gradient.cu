// `linear` with a decay per key: the gradients of each chunk, from the state that enters the chunk and the gradient of
// the state that leaves it (per_key.cuh).
#include <type_traits>

#include "cuda/key_gradients.cuh"
#include "cuda/launch.cuh"
#include "ops/linear/per_key/per_key.cuh"

namespace horner::cuda {
namespace {

// Where gradients of a stripe come from: the entering state, the other stripe of its half chunk, the other half chunk, the
// gradient of the leaving state.
enum Source { kEntering, kNear, kFar, kLeaving };

// Sums of one slice. There are two buffers, so that the next slice can start while this one is read.
struct SliceSums {
  float totals[kWarps][kSlice];    // log-decays of each stripe
  float flows[4][kWarps][kSlice];  // flow from each Source
  float through[kSlice];           // rowsum(S * Z)
};

size_t memory_bytes(int keys, int width) {
  return size_t(keys) * width * 4 + 64 * width * 4 + 8192 + 2 * sizeof(SliceSums);
}

// Gradients of q, k and g for one slice. Each source gives a row y (W M, or a product with a state); term = y factor is
// the gradient of q if the row is late, of k if it is early. x term (x: that q or k) is the gradient of every decay that
// the term has crossed inside the stripe: tokens up to a late row, tokens after an early row.
struct Gradients {
  Values q = {}, k = {}, g = {};

  // x term, as B operands: each the sum of two bf16.
  struct Flow {
    uint32_t high[2][4], low[2][4];
    __device__ Flow(const Values& term, uint4 x0, uint4 x1) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int h = e / 4, j = e % 4;
        const uint4 x = h == 0 ? x0 : x1;
        const float a = term[j][2 * h] * element(x, 2 * j);
        const float b = term[j][2 * h + 1] * element(x, 2 * j + 1);
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

  // For a level inside the stripe; turns y into the term.
  __device__ void add_level(
      Values& y, const Values& factor, const Raw& x, int half, const Place& me
  ) {
#pragma unroll
    for (int e = 0; e < 16; ++e) y[e / 4][e % 4] *= factor[e / 4][e % 4];
    const bool late0 = half == 8 ? false : me.r & half, late1 = half == 8 ? true : me.r & half;
    if (late0) {
#pragma unroll
      for (int e = 0; e < 8; ++e) q[e / 2][e % 2] += y[e / 2][e % 2];
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e) k[e / 2][e % 2] += y[e / 2][e % 2];
    }
    if (late1) {
#pragma unroll
      for (int e = 0; e < 8; ++e) q[e / 2][2 + e % 2] += y[e / 2][2 + e % 2];
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e) k[e / 2][2 + e % 2] += y[e / 2][2 + e % 2];
    }
    __syncwarp();
    Flow(y, either(late0, x.q[0], x.k[0]), either(late1, x.q[1], x.k[1]))
        .sum(g, level_pattern(half, true, me).a);
  }
  // For a source outside the stripe. total: the flow that crosses the whole stripe.
  __device__ void add_source(
      Values& y,
      const Factors& factors,
      const Values& since,
      const Raw& x,
      float (&total)[8],
      const Place& me
  ) {
    Values factor;
    factors.powers(factor, since);
#pragma unroll
    for (int e = 0; e < 16; ++e) y[e / 4][e % 4] *= factor[e / 4][e % 4];
    const bool late = factors.late;
    if (late) {
#pragma unroll
      for (int e = 0; e < 16; ++e) q[e / 4][e % 4] += y[e / 4][e % 4];
    } else {
#pragma unroll
      for (int e = 0; e < 16; ++e) k[e / 4][e % 4] += y[e / 4][e % 4];
    }
    const Flow flow(y, either(late, x.q[0], x.k[0]), either(late, x.q[1], x.k[1]));
    const Pattern across = late ? flow_up_to(me) : flow_after(me);
    flow.sum(g, across.a);
    Values all = {};
    constexpr uint32_t every[4] = {kOnes, kOnes, kOnes, kOnes};
    flow.sum(all, every);
#pragma unroll
    for (int n = 0; n < 8; ++n) total[n] = all[n / 2][n % 2];
  }
};

// d = rows of this stripe (tokens by columns) times the transposed state: tokens by the keys of a slice.
template <int kWidth>
__device__ void multiply_transposed_state(
    Values& d, uint32_t rows, uint32_t state, int keys, int slice, const Place& me
) {
  clear(d);
  const int row = me.lane % 8, half = me.lane / 8 % 2;
#pragma unroll 1
  for (int step = 0; step < kWidth / 16; ++step) {
    uint32_t a[4], b[4];
    const int unit = step % 4 * 2;
    load_matrices(
        a,
        rows + step / 4 * kTileBytes + tile_offset(16 * me.warp + me.lane % 16, unit + me.lane / 16)
    );
    const uint32_t tile = state + step / 4 * keys * 128;
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      const int key = kSlice * slice + 8 * (row / 2) + 2 * (j + me.lane / 16) + row % 2;
      load_matrices(b, tile + state_offset(key, unit + half));
      multiply(d[j], a, b[0], b[1]);
      multiply(d[j + 1], a, b[2], b[3]);
    }
  }
}

// Shared memory: S, Z, v, do, and the rows of levels 16 and 32 of one slice. A slice of S that has been read is overwritten
// by k e^{G_C-G} of the warp's rows; v is overwritten by dv.
template <int kWidth>
struct Memory {
  unsigned char *S, *Z, *v, *out;
  uint4 *rows16, *rows32;  // (4,2,32)
  SliceSums* sums;         // (2)
  uint32_t S_at, Z_at, v_at, out_at;
  int keys;

  __device__ Memory(unsigned char* memory, int keys)
      : S(memory),
        Z(S + keys * kWidth * 2),
        v(Z + keys * kWidth * 2),
        out(v + 64 * kWidth * 2),
        rows16(reinterpret_cast<uint4*>(out + 64 * kWidth * 2)),
        rows32(rows16 + 256),
        sums(reinterpret_cast<SliceSums*>(rows32 + 256)),
        S_at(shared_address(S)),
        Z_at(shared_address(Z)),
        v_at(shared_address(v)),
        out_at(shared_address(out)),
        keys(keys) {}

  // Begins two groups of copies: v and do, then S and Z.
  __device__ __forceinline__ void load(
      const PerKey& p, const Chunk& c, const Heads& h, unsigned slot, const Place& me
  ) const {
    load_tokens<kWidth>(v_at, p.v, c, h, p.V, me);
    load_tokens<kWidth>(out_at, p.out, c, h, p.V, me);
    copy_commit();
    const int64_t bytes = int64_t(keys) * kWidth * 2;
    const unsigned char* from = static_cast<const unsigned char*>(p.S);
    load_state<kWidth>(S_at, from + (int64_t(slot) * p.states + h.shared) * bytes, keys, me);
    from = static_cast<const unsigned char*>(p.Z);
    load_state<kWidth>(Z_at, from + (int64_t(slot) * p.H + h.own) * bytes, keys, me);
    copy_commit();
  }

  // rowsum(S * Z) of a slice: four lanes a key.
  __device__ __forceinline__ void sum_through(float* through, int slice, const Place& me) const {
    const int key = kSlice * slice + me.thread / 4;
    float sum = 0.f;
#pragma unroll
    for (int n = 0; n < kWidth / 32; ++n) {
      const uint32_t where = n / 2 * keys * 128 + state_offset(key, n % 2 * 4 + me.i);
      const uint4 a = *reinterpret_cast<const uint4*>(S + where);
      const uint4 b = *reinterpret_cast<const uint4*>(Z + where);
#pragma unroll
      for (int e = 0; e < 8; ++e) sum += element(a, e) * element(b, e);
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (me.i == 0) through[me.thread / 4] = sum;
  }
};

// Columns of A^T: the late stripes that see this warp's stripe.
struct LateScores {
  float near[2][4] = {}, far[2][2][4] = {};  // in the same half chunk; in the other half
};

// The levels inside a stripe, 1 to 8 tokens apart: dA M (M: the rows of a level) is the gradient of its rows.
template <class Inner>
__device__ __forceinline__ void add_inner_levels(
    Gradients& grad,
    Inner& inner,
    Fragment& m,
    const Symmetric& W,
    const Decays& d,
    const Raw& x,
    bool narrow_g,
    const Place& me
) {
  Values factor;
  inner.add_same(x, me);
#pragma unroll 1
  for (int half = 1; half < 8; half *= 2) {
    inner_level(factor, m, half, d, x, narrow_g, me);
    inner.add(half, m, me);
    const uint2 a = W.part(half, me);
    Values y = {};
    multiply_level(y, a.x, 0u, 0u, a.y, m);
    grad.add_level(y, factor, x, half, me);
  }
  inner_level(factor, m, 8, d, x, narrow_g, me);
  inner.add_eight(m);
  Values y = {};
  multiply_level(y, 0u, W.own[1], W.own[2], 0u, m);
  grad.add_level(y, factor, x, 8, me);
}

// y = dA times the rows of the other stripes of one level; also A^T of the late ones.
template <int kStripes>
__device__ __forceinline__ void multiply_stripes(
    Values& y,
    Fragment& m,
    float (*late)[2][4],
    const uint32_t (*dA)[4],
    const uint4* rows,
    bool is_late,
    const Place& me
) {
  clear(y);
  Fragment other;
  m.load(rows + 64 * me.warp, me.lane);
#pragma unroll
  for (int n = 0; n < kStripes; ++n) {
    other.load(rows + 64 * (me.warp ^ (kStripes + n)), me.lane);
    if (!is_late) {
      multiply_rows(late[n][0], m, other, 0);
      multiply_rows(late[n][1], m, other, 1);
    }
    multiply_level(y, dA[n][0], dA[n][1], dA[n][2], dA[n][3], other);
  }
}

// y of one Source, before its decays, and the path of these decays. Also fills rows16 and rows32, and A^T.
template <int kWidth>
__device__ __forceinline__ DecayPath multiply_source(
    Values& y,
    Fragment& m,
    LateScores& late,
    int source,
    int slice,
    const Memory<kWidth>& memory,
    const float* totals,
    const Symmetric& W,
    const Values& since,
    const Raw& x,
    const Place& me
) {
  DecayPath path = to_start(me);
  if (source == kEntering) {
    multiply_transposed_state<kWidth>(y, memory.out_at, memory.S_at, memory.keys, slice, me);
    __syncthreads();
    outer_level<32>(m, since, totals, x, me);
    m.store(memory.rows32 + 64 * me.warp, me.lane);
    outer_level<16>(m, since, totals, x, me);
    m.store(memory.rows16 + 64 * me.warp, me.lane);
    __syncthreads();
  } else if (source == kLeaving) {
    path = to_end(me);
    multiply_transposed_state<kWidth>(y, memory.v_at, memory.Z_at, memory.keys, slice, me);
  } else if (source == kNear) {
    path = to_middle<16>(me);
    multiply_stripes<1>(y, m, &late.near, &W.near, memory.rows16, path.late, me);
  } else {
    path = to_middle<32>(me);
    multiply_stripes<2>(y, m, late.far, W.far, memory.rows32, path.late, me);
  }
  return path;
}

// The terms t = s: dA_tt k_t and dA_tt q_t. They cross no decay.
__device__ __forceinline__ void add_same(Gradients& grad, const Symmetric& W, const Raw& x) {
#pragma unroll
  for (int e = 0; e < 16; ++e) {
    const int h = e / 2 % 2, n = e / 4 * 2 + e % 2;
    grad.q[e / 4][e % 4] += W.same[h] * element(x.k[h], n);
    grad.k[e / 4][e % 4] += W.same[h] * element(x.q[h], n);
  }
}

// The flow that crosses this whole stripe, from the other stripes and through the chunk, e^{G_C} * rowsum(S * Z).
__device__ __forceinline__ void add_crossing(Values& dg, const SliceSums& sums, const Place& me) {
  float all[8] = {}, rest[8] = {};
#pragma unroll 1
  for (int w = 0; w < kWarps; ++w) {
    add_total(all, sums.totals[0], w, me);
    if (w < me.warp) add_total(rest, sums.flows[kLeaving][0], w, me);
    if (w > me.warp) add_total(rest, sums.flows[kEntering][0], w, me);
  }
  if (me.warp == 1 || me.warp == 2) add_total(rest, sums.flows[kFar][0], me.warp == 1 ? 0 : 3, me);
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    rest[n] += exp2_fast(all[n]) * sums.through[8 * me.i + n];
    dg[n / 2][n % 2] += rest[n];
    dg[n / 2][2 + n % 2] += rest[n];
  }
}

// dV = A^T dO + (K * e^{G_C-G}) Z
template <int kWidth>
__device__ __forceinline__ void store_dv(
    const PerKey& p,
    const Memory<kWidth>& m,
    const InnerScores<true>& inner,
    const LateScores& late,
    const Chunk& c,
    const Heads& h,
    int slices,
    const Place& me
) {
  uint32_t a[4][4];  // A^T, over the tokens of stripes warp .. 3
  inner.operand(a[0]);
  to_operand(a[1], late.near);
  to_operand(a[2], late.far[0]);
  to_operand(a[3], late.far[1]);
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kWidth / 64; ++t) {
    float y[8][4] = {};
    const uint32_t tile = m.out_at + t * kTileBytes;
    multiply_values(y, a[0], tile, me.warp, me);
    if (me.warp % 2 == 0) multiply_values(y, a[1], tile, me.warp + 1, me);
    if (me.warp < 2) multiply_values(y, a[2], tile, me.warp ^ 2, me);
    if (me.warp < 2) multiply_values(y, a[3], tile, me.warp ^ 3, me);
    // k e^{G_C-G} of slice s, where S was: 4096 bytes per slice in the first tile
    const uint4* rows = reinterpret_cast<const uint4*>(m.S) + 64 * me.warp;
    multiply_state(y, rows, 256, m.Z_at + t * m.keys * 128, slices, me);
    unsigned char* own = m.v + t * kTileBytes + 16 * me.warp * 128;
    store_rows(y, p.scale, own, p.dv, p.wide, c, h, 64 * t, p.V, me);
  }
}

// A block owns one chunk of one head, a warp one stripe. It goes over the slices of keys: dq, dk and dg of a slice are in
// registers, A^T stays there for dv.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, 2) gradient_kernel(const __grid_constant__ PerKey p) {
  HORNER_DYNAMIC_MEMORY(memory);
  const Place me(int(threadIdx.x));
  const int slices = (p.K + kSlice - 1) / kSlice;
  const unsigned slot = blockIdx.x / unsigned(p.H);
  const Heads h(int(blockIdx.x % unsigned(p.H)), p.group);
  const Chunk c = chunk_at(p.sequences, slot);
  if (c.rows <= 0) return;
  const Memory<kWidth> m(memory, slices * kSlice);
  prefetch_slices(p, c, h, me);
  m.load(p, c, h, slot, me);
  copy_wait<1>();
  __syncthreads();
  Symmetric W;
  W.template compute<kWidth>(m.v_at, m.out_at, 1.f, me);
  copy_wait<0>();
  __syncthreads();

  InnerScores<true> inner;
  LateScores late;
  for (int s = 0; s < slices; ++s) {
    const Place me(opaque(int(threadIdx.x)));
    Raw x;
    SliceRows(p, c, h, me).load(x, p, c.rows, s, me);
    SliceSums& own = m.sums[s & 1];
    Gradients grad;
    Fragment rows;
    Values since;
    float total[8];
    const Decays d(x, p.narrow_g);
    add_inner_levels(grad, inner, rows, W, d, x, p.narrow_g, me);
    d.sum(since, up_to(me));
    stripe_total(total, since, me);
    if (me.r == 0) store_eight(own.totals[me.warp] + 8 * me.i, total);
    m.sum_through(own.through, s, me);
#pragma unroll 1
    for (int source = kEntering; source <= kLeaving; ++source) {
      Values y;
      const DecayPath path =
          multiply_source(y, rows, late, source, s, m, own.totals[0], W, since, x, me);
      const Factors factors(path, own.totals[0], me);
      grad.add_source(y, factors, since, x, total, me);
      if (me.r == 0) store_eight(own.flows[source][me.warp] + 8 * me.i, total);
    }
    Factors(to_end(me), own.totals[0], me).weigh(rows, x.k[0], x.k[1], since);
    // S of this slice has been read: its 4096 bytes in the first tile are free
    rows.store_operands(reinterpret_cast<uint4*>(m.S) + 256 * s + 64 * me.warp, me.lane);
    add_same(grad, W, x);
    store_keys(grad.q, p.scale, p.dq, false, p, c, h, s, me);
    store_keys(grad.k, p.scale, p.dk, p.wide, p, c, h, s, me);
    __syncthreads();
    add_crossing(grad.g, own, me);
    store_keys(grad.g, p.scale, p.dg, !p.narrow_dg, p, c, h, s, me);
  }
  store_dv(p, m, inner, late, c, h, slices, me);
}

template <int kWidth>
cudaError_t run(const PerKey& p, cudaStream_t stream) {
  const size_t bytes = memory_bytes(padded_keys(p.K), kWidth);
  return launch(gradient_kernel<kWidth>, p.sequences.slots() * p.H, kThreads, bytes, stream, p);
}

}  // namespace

cudaError_t key_gradient(const PerKey& p, cudaStream_t stream) {
  return p.V <= 64 ? run<64>(p, stream) : run<128>(p, stream);
}

}  // namespace horner::cuda
