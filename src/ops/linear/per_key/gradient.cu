// `linear` with a decay per key: the gradients of each chunk, from the state that enters it and the gradient
// of the one that leaves it (per_key.cuh).
#include <type_traits>

#include "cuda/key_gradients.cuh"
#include "cuda/launch.cuh"
#include "ops/linear/per_key/per_key.cuh"

namespace horner::cuda {
namespace {

// Where gradients come from: the state that enters, the other stripe of the half of the chunk, the other half, the
// gradient of the state that leaves.
enum Source { kEntering, kNear, kFar, kLeaving };

// Of one slice; two of them, so that the next may begin while the last is read.
struct SliceSums {
  float totals[kWarps][kSlice];    // log-decays
  float flows[4][kWarps][kSlice];  // of each Source
  float through[kSlice];           // rowsum(S * Z)
};

size_t memory_bytes(int keys, int width) {
  return size_t(keys) * width * 4 + 64 * width * 4 + 8192 + 2 * sizeof(SliceSums);
}

// Gradients of a slice: of q, k, and of g by the flows inside the stripe. A row with term = y factor, where y = W M or
// comes from a state, has it as gradient of q if late, of k if early; x term flows across the decays of the tokens up to
// a late row, and after an early one.
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

  // Levels inside the stripe; y becomes the term.
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
  // What comes from outside the stripe; `total`: its flow through the whole of it.
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

// d = rows of this stripe (tokens by columns) times the transposed state: tokens by keys of a slice.
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

// A block owns one chunk of one head, a warp one stripe of it. Shared memory: S, Z, v and do as they come; rows of
// levels 16 and 32 of one slice. Where S has been read, k e^{G_C-G} of the warp's rows; in v, dv on its way out.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, 2) gradient_kernel(const __grid_constant__ PerKey p) {
  HORNER_DYNAMIC_MEMORY(memory);
  const Place me(int(threadIdx.x));
  const int slices = (p.K + kSlice - 1) / kSlice, keys = slices * kSlice;
  const unsigned slot = blockIdx.x / unsigned(p.H);
  const int head = int(blockIdx.x % unsigned(p.H));
  const Heads h(head, p.group);
  const Chunk c = chunk_at(p.sequences, slot);
  if (c.rows <= 0) return;
  unsigned char *S = memory, *Z = S + keys * kWidth * 2, *v = Z + keys * kWidth * 2;
  unsigned char* out = v + 64 * kWidth * 2;
  uint4* rows16 = reinterpret_cast<uint4*>(out + 64 * kWidth * 2);  // (4,2,32)
  uint4* rows32 = rows16 + 256;
  SliceSums* sums = reinterpret_cast<SliceSums*>(rows32 + 256);  // (2)
  const uint32_t Sa = shared_address(S), Za = shared_address(Z), va = shared_address(v),
                 outa = shared_address(out);

  prefetch_slices(p, c, h, me);
  load_tokens<kWidth>(va, p.v, c, h, p.V, me);
  load_tokens<kWidth>(outa, p.out, c, h, p.V, me);
  copy_commit();
  const int64_t bytes = int64_t(keys) * kWidth * 2;
  const unsigned char* from = static_cast<const unsigned char*>(p.S);
  load_state<kWidth>(Sa, from + (int64_t(slot) * p.states + h.shared) * bytes, keys, me);
  from = static_cast<const unsigned char*>(p.Z);
  load_state<kWidth>(Za, from + (int64_t(slot) * p.H + h.own) * bytes, keys, me);
  copy_commit();
  copy_wait<1>();
  __syncthreads();
  Symmetric W;
  W.template compute<kWidth>(va, outa, 1.f, me);
  copy_wait<0>();
  __syncthreads();

  InnerScores<true> inner;
  float to16[2][4] = {}, to32[2][2][4] = {};  // columns of the late stripes
  for (int s = 0; s < slices; ++s) {
    const Place me(opaque(int(threadIdx.x)));
    Raw x;
    SliceRows(p, c, h, me).load(x, p, c.rows, s, me);
    SliceSums& own = sums[s & 1];
    Gradients grad;
    Values factor;
    float total[8];
    const Decays d(x, p.narrow_g);
    Fragment m;
    inner.add_same(x, me);
#pragma unroll 1
    for (int half = 1; half < 8; half *= 2) {  // inside eight tokens
      inner_level(factor, m, half, d, x, p.narrow_g, me);
      inner.add(half, m, me);
      const uint2 a = W.part(half, me);
      Values y = {};
      multiply_level(y, a.x, 0u, 0u, a.y, m);
      grad.add_level(y, factor, x, half, me);
    }
    inner_level(factor, m, 8, d, x, p.narrow_g, me);
    inner.add_eight(m);
    Values y = {}, since;
    multiply_level(y, 0u, W.own[1], W.own[2], 0u, m);
    grad.add_level(y, factor, x, 8, me);
    d.sum(since, up_to(me));
    stripe_total(total, since, me);
    if (me.r == 0) store_eight(own.totals[me.warp] + 8 * me.i, total);
    {  // rowsum(S * Z): four lanes a key
      const int key = kSlice * s + me.thread / 4;
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
      if (me.i == 0) own.through[me.thread / 4] = sum;
    }
#pragma unroll 1
    for (int source = kEntering; source <= kLeaving; ++source) {
      DecayPath path = to_start(me);
      if (source == kEntering) {
        multiply_transposed_state<kWidth>(y, outa, Sa, keys, s, me);
        __syncthreads();
        outer_level<32>(m, since, own.totals[0], x, me);
        m.store(rows32 + 64 * me.warp, me.lane);
        outer_level<16>(m, since, own.totals[0], x, me);
        m.store(rows16 + 64 * me.warp, me.lane);
        __syncthreads();
      } else if (source == kLeaving) {
        path = to_end(me);
        multiply_transposed_state<kWidth>(y, va, Za, keys, s, me);
      } else if (source == kNear) {
        path = to_middle<16>(me);
        clear(y);
        Fragment other;
        m.load(rows16 + 64 * me.warp, me.lane);
        other.load(rows16 + 64 * (me.warp ^ 1), me.lane);
        if (!path.late) {
          multiply_rows(to16[0], m, other, 0);
          multiply_rows(to16[1], m, other, 1);
        }
        multiply_level(y, W.near[0], W.near[1], W.near[2], W.near[3], other);
      } else {
        path = to_middle<32>(me);
        clear(y);
        Fragment other;
        m.load(rows32 + 64 * me.warp, me.lane);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          other.load(rows32 + 64 * (me.warp ^ (2 + n)), me.lane);
          if (!path.late) {
            multiply_rows(to32[n][0], m, other, 0);
            multiply_rows(to32[n][1], m, other, 1);
          }
          multiply_level(y, W.far[n][0], W.far[n][1], W.far[n][2], W.far[n][3], other);
        }
      }
      const Factors factors(path, own.totals[0], me);
      grad.add_source(y, factors, since, x, total, me);
      if (me.r == 0) store_eight(own.flows[source][me.warp] + 8 * me.i, total);
    }
    Factors(to_end(me), own.totals[0], me).weigh(m, x.k[0], x.k[1], since);
    // S of this slice has been read; it has 4096 bytes in its first tile
    m.store_operands(reinterpret_cast<uint4*>(S) + 256 * s + 64 * me.warp, me.lane);
#pragma unroll
    for (int e = 0; e < 16; ++e) {
      const int h = e / 2 % 2, n = e / 4 * 2 + e % 2;
      grad.q[e / 4][e % 4] += W.same[h] * element(x.k[h], n);
      grad.k[e / 4][e % 4] += W.same[h] * element(x.q[h], n);
    }
    store_keys(grad.q, p.scale, p.dq, false, p, c, h, s, me);
    store_keys(grad.k, p.scale, p.dk, p.wide, p, c, h, s, me);
    __syncthreads();
    float all[8] = {}, rest[8] = {};
#pragma unroll 1
    for (int w = 0; w < kWarps; ++w) {
      add_total(all, own.totals[0], w, me);
      if (w < me.warp) add_total(rest, own.flows[kLeaving][0], w, me);
      if (w > me.warp) add_total(rest, own.flows[kEntering][0], w, me);
    }
    if (me.warp == 1 || me.warp == 2) add_total(rest, own.flows[kFar][0], me.warp == 1 ? 0 : 3, me);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      rest[n] += exp2_fast(all[n]) * own.through[8 * me.i + n];
      grad.g[n / 2][n % 2] += rest[n];
      grad.g[n / 2][2 + n % 2] += rest[n];
    }
    store_keys(grad.g, p.scale, p.dg, !p.narrow_dg, p, c, h, s, me);
  }

  uint32_t a[4][4];  // A^T, over the tokens of stripes warp .. 3
  inner.operand(a[0]);
  to_operand(a[1], to16);
  to_operand(a[2], to32[0]);
  to_operand(a[3], to32[1]);
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kWidth / 64; ++t) {
    float y[8][4] = {};
    const uint32_t tile = outa + t * kTileBytes;
    multiply_values(y, a[0], tile, me.warp, me);
    if (me.warp % 2 == 0) multiply_values(y, a[1], tile, me.warp + 1, me);
    if (me.warp < 2) multiply_values(y, a[2], tile, me.warp ^ 2, me);
    if (me.warp < 2) multiply_values(y, a[3], tile, me.warp ^ 3, me);
    // a slice of S has 4096 bytes in its first tile
    multiply_state(
        y, reinterpret_cast<const uint4*>(S) + 64 * me.warp, 256, Za + t * keys * 128, slices, me
    );
    store_rows(
        y, p.scale, v + t * kTileBytes + 16 * me.warp * 128, p.dv, p.wide, c, h, 64 * t, p.V, me
    );
  }
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
