// `linear`, level 2: the warpgroups that compute y from the copies of the state.
#pragma once

#include "ops/linear/chunked/carry.cuh"

namespace horner::cuda {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

// P_ts times M_ts for s <= t, else 0; in reverse for s >= t. G: sums of decays of the queries, `keys`: of the keys. A masked
// exponent may be positive, and its power is discarded.
template <bool kDecay, bool kReverse>
__device__ void decay_mask(float (&P)[32], const float* G, const float* keys, const Place& at) {
  const float *rows = kReverse ? keys : G, *columns = kReverse ? G : keys;
  const float G0 = kDecay ? rows[at.row] : 0.f, G1 = kDecay ? rows[at.row + 8] : 0.f;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 Gs =
        kDecay ? *reinterpret_cast<const float2*>(columns + 8 * j + at.pair) : float2{};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int r = at.row + 8 * (e / 2), column = 8 * j + at.pair + e % 2;
      const float difference = (e / 2 ? G1 : G0) - (e % 2 ? Gs.y : Gs.x);
      if (kDecay) P[4 * j + e] *= exp2_fast(kReverse ? -difference : difference);
      if (kReverse ? column < r : column > r) P[4 * j + e] = 0.f;
    }
  }
}

// Sums 2 kHalf values over two lanes that differ in bit 2 kHalf: the lanes swap halves, and each keeps the sums of one half.
template <int kHalf>
__device__ void add_halves(float (&x)[16]) {
  const bool upper = threadIdx.x & (2 * kHalf);
#pragma unroll
  for (int e = 0; e < kHalf; ++e) {
    const float low = x[e], high = x[e + kHalf];
    x[e] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, 2 * kHalf);
  }
}

// A barrier for the threads of one warpgroup.
__device__ void group_sync(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kGroup) : "memory");
}

// Row and column sums of E_ts = P_ts (x_t.v_s), s < t.
template <int kRows, Role kRole>
__device__ void sum_inner(
    const float (&P)[32], float (&E)[32], Memory<kRows, kRole>& m, int i, const Place& at
) {
  float r0 = 0.f, r1 = 0.f, columns[16];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const bool diagonal = at.row + 8 * (e / 2) == 8 * j + at.pair + e % 2;
      E[4 * j + e] = diagonal ? 0.f : P[4 * j + e] * E[4 * j + e];
    }
    r0 += E[4 * j] + E[4 * j + 1];
    r1 += E[4 * j + 2] + E[4 * j + 3];
    columns[2 * j] = E[4 * j] + E[4 * j + 2];
    columns[2 * j + 1] = E[4 * j + 1] + E[4 * j + 3];
  }
  add_halves<8>(columns);  // over the lanes that share columns; each lane keeps two of 16 sums
  add_halves<4>(columns);
  add_halves<2>(columns);
  const int j = (at.lane & 16 ? 4 : 0) + (at.lane & 8 ? 2 : 0) + (at.lane & 4 ? 1 : 0);
  *reinterpret_cast<float2*>(m.inner_columns[i & 3][at.warp] + 8 * j + at.pair) = {
      columns[0], columns[1]};
  r0 = quad_sum(r0);
  r1 = quad_sum(r1);
  if (at.lane % 4 == 0) m.inner_rows[i & 3][at.row] = r0, m.inner_rows[i & 3][at.row + 8] = r1;
}

// A warp's rows of a tile, as A operands.
__device__ void load_operands(uint32_t (&x)[4][4], const unsigned char* tile, const Place& at) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int r = 16 * at.warp + at.lane % 16, unit = 2 * j + at.lane / 16;
    load_matrices(x[j], shared_address(tile) + tile_offset(r, unit));
  }
}

// This lane's share of x_t.y_t for the thread's two rows. store_flow sums the shares and stores them.
__device__ float2 rows_by_rows(const uint32_t (&x)[4][4], const float (&Y)[32]) {
  float sum[2] = {0.f, 0.f};
#pragma unroll
  for (int e = 0; e < 16; ++e) {
    const uint32_t two = x[e / 4][e % 4];
    sum[e % 2] += Y[2 * e] * low_half(two) + Y[2 * e + 1] * high_half(two);
  }
  return {sum[0], sum[1]};
}
__device__ void store_flow(float* to, float2 flow, float scale, int rows, const Place& at) {
  const float first = quad_sum(flow.x) * scale, second = quad_sum(flow.y) * scale;
  if (at.lane % 4 == 0 && at.row < rows) to[at.row] = first;
  if (at.lane % 4 == 0 && at.row + 8 < rows) to[at.row + 8] = second;
}

__device__ inline uint4 add_pairs(uint4 x, uint4 y) {
  const auto add = [](uint32_t a, uint32_t b) {
    return pack(low_half(a) + low_half(b), high_half(a) + high_half(b));
  };
  return {add(x.x, y.x), add(x.y, y.y), add(x.z, y.z), add(x.w, y.w)};
}

__device__ void store_y(
    const float (&Y)[32],
    float scale,
    const Rows& out,
    const Sweep& p,
    const Job& job,
    int chunk,
    unsigned char* staged,
    const Place& at
) {
  const int rows = tokens_in(p, chunk);
  const int64_t first = int64_t(chunk) * 64 * out.t + job.first_column;
  if (p.wide_y) {
    float* to = head<float>(out, job) + first;
#pragma unroll
    for (int e = 0; e < 32; e += 2) {
      const int r = at.row + 8 * (e / 2 % 2), column = 8 * (e / 4) + at.pair;
      if (r >= rows || column >= job.width) continue;
      float2& y = *reinterpret_cast<float2*>(to + r * out.t + column);
      const float2 before = p.add_y ? y : float2{0.f, 0.f};
      y = {before.x + Y[e] * scale, before.y + Y[e + 1] * scale};
    }
    return;
  }
  __nv_bfloat16* to = head<__nv_bfloat16>(out, job) + first;
  store_pairs(staged, Y, scale, at);
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int r = 16 * at.warp + 4 * n + at.lane / 8, unit = at.lane % 8;
    uint4 value = *reinterpret_cast<const uint4*>(staged + tile_offset(r, unit));
    if (r >= rows || unit * 8 >= job.width) continue;
    uint4& y = *reinterpret_cast<uint4*>(to + r * out.t + unit * 8);
    if (p.add_y) value = add_pairs(value, y);
    y = value;
  }
  __syncwarp();
}

// P = q k^T
template <int kRows>
__device__ __forceinline__ void multiply_scores(float (&P)[32], uint32_t q, uint32_t k) {
#pragma unroll
  for (int j = 0; j < kRows / 16; ++j) {
    const uint32_t step = (j / 4) * kTileBytes + (j % 4) * 32;
    product<false, false>(P, operand(q + step), operand(k + step), j > 0);
  }
}

// Y = q S. kByColumns: the copy of the state lies by columns.
template <int kRows, bool kByColumns>
__device__ __forceinline__ void multiply_state(float (&Y)[32], uint32_t q, const void* copy) {
#pragma unroll
  for (int j = 0; j < kRows / 16; ++j) {
    const uint32_t step = (j / 4) * kTileBytes + (j % 4) * 32;
    const uint32_t S = shared_address(copy);
    if constexpr (kByColumns) {
      product<false, false>(Y, operand(q + step), operand(S + step), j > 0);
    } else {
      product<false, true>(Y, operand(q + step), operand(S + j * 2048), j > 0);
    }
  }
}

// e^{G_t} q_t S, from q S and R = e^{G_t} of the thread's two rows.
template <bool kDecay>
__device__ __forceinline__ void decay_rows(float (&Y)[32], float R0, float R1) {
  if constexpr (kDecay) {
#pragma unroll
    for (int e = 0; e < 32; ++e) Y[e] *= e / 2 % 2 ? R1 : R0;
  }
}

// E = x v^T
__device__ __forceinline__ void multiply_values(
    float (&E)[32], const uint32_t (&x)[4][4], uint32_t v
) {
#pragma unroll
  for (int j = 0; j < 4; ++j) product<false>(E, x[j], operand(v + j * 32), j > 0);
}

// Begins P = q k^T with E = x v^T for a Crossing, and then Y = q S, as two groups of products.
template <int kRows, bool kByColumns, Role kRole>
__device__ __forceinline__ void begin_products(
    float (&P)[32],
    float (&E)[32],
    float (&Y)[32],
    const uint32_t (&x)[4][4],
    Memory<kRows, kRole>& m,
    int i
) {
  const Stage<kRows, kRole>& s = m.at(i);
  product_fence();
  multiply_scores<kRows>(P, shared_address(s.q), shared_address(s.k));
  if constexpr (kRole == Role::dq) multiply_values(E, x, shared_address(s.v));
  product_commit();
  m.wait_copied(i);
  product_fence();
  multiply_state<kRows, kByColumns>(Y, shared_address(s.q), m.S[i & 1]);
  product_commit();
}

// The state's share of the normaliser, and its floor.
template <int kRows, Role kRole>
__device__ __forceinline__ Denominators
denominators(const Sweep& p, Memory<kRows, kRole>& m, int i, float R0, float R1, const Place& at) {
  const int slot = i % m.kStages;
  Denominators den = rows_by_sums<kRows>(m.at(i).q, m.sums[slot], R0, R1, at);
  if (p.norm.floor) den.floor[0] = m.shift[slot][at.row], den.floor[1] = m.shift[slot][at.row + 8];
  return den;
}

// Stores y of one chunk: divided by the normaliser if there is one, and then also the rounding error if wanted.
template <Norm kNorm, class Den>
__device__ __forceinline__ void finish_y(
    float (&Y)[32],
    const Den& den,
    const Sweep& p,
    const Job& job,
    int chunk,
    int rows,
    unsigned char* staged,
    const Place& at
) {
  if constexpr (kNorm == Norm::divides) {
    divide(Y, den, p, job, int64_t(chunk) * 64, rows, at);
    store_y(Y, 1.f, p.y, p, job, chunk, staged, at);
    if (p.norm.rest.data) {
      leave_rest(Y);
      store_y(Y, 1.f, p.norm.rest, p, job, chunk, staged, at);
    }
  } else {
    store_y(Y, float(p.scale), p.y, p, job, chunk, staged, at);
  }
}

// The column sums of E minus its row sums, for each token of the chunk.
template <int kRows, Role kRole>
__device__ __forceinline__ void store_inner(
    float* to, const Memory<kRows, kRole>& m, int i, int rows, float scale, const Place& at
) {
  if (at.thread >= rows) return;
  const auto& columns = m.inner_columns[i & 3];
  const float later = (columns[0][at.thread] + columns[1][at.thread]) +
                      (columns[2][at.thread] + columns[3][at.thread]);
  to[at.thread] = (later - m.inner_rows[i & 3][at.thread]) * scale;
}

// pw = M * P in bf16, the weights of the values. Also the sums of E for a Crossing, and the weights' share of the normaliser.
template <int kRows, bool kDecay, bool kReverse, Role kRole, Norm kNorm>
__device__ __forceinline__ void weigh_scores(
    uint32_t (&pw)[4][4],
    float (&P)[32],
    float (&E)[32],
    Denominators& den,
    const Sweep& p,
    Memory<kRows, kRole>& m,
    int i,
    const Place& at
) {
  const int slot = i % m.kStages;
  if constexpr (kNorm == Norm::shifts) shift_products<kReverse>(P, m.shift[slot], Place::opaque());
  constexpr bool kGains = kDecay && kNorm != Norm::none;
  decay_mask<kDecay, kReverse>(P, m.G[slot], kGains ? m.keys[slot] : m.G[slot], at);
  if constexpr (kRole == Role::dq) {
    fence_registers(E);
    sum_inner(P, E, m, i, at);
  }
#pragma unroll
  for (int e = 0; e < 16; ++e) pw[e / 4][e % 4] = pack(P[2 * e], P[2 * e + 1]);
  if constexpr (kNorm == Norm::divides) add_weights(den, p.norm.floor != nullptr, P, pw);
}

// y_t = e^{G_t} q_t S + sum_{s<=t} M_ts (q_t.k_s) v_s. Registers hold P = q k^T and y, and for a Crossing also x and
// E = x v^T. One warpgroup takes the even chunks, the other the odd ones: while one waits for its products, the other computes.
template <int kRows, bool kDecay, bool kReverse, Role kRole, Norm kNorm>
__device__ void compute_y(
    const Sweep& p, const Crossing& out, const Job& job, Memory<kRows, kRole>& m, int group
) {
  constexpr bool kCross = kCrosses<kRole>;
  const Place at;
  const int64_t crossing = (int64_t(job.block) * p.B * p.H + job.bh) * p.T;
  for (int i = group; i < job.chunks; i += 2) {
    const int c = chunk_at<kReverse>(job, i), rows = tokens_in(p, c), slot = i % m.kStages;
    const int64_t t = int64_t(c) * 64;
    const Stage<kRows, kRole>& s = m.at(i);
    const uint32_t vs = shared_address(s.v);
    m.wait_full(i);

    uint32_t x[4][4];
    if constexpr (kCross) load_operands(x, s.x[0], at);
    float P[32], Y[32], E[32];
    begin_products<kRows, kTurned<kDecay, kNorm>, kRole>(P, E, Y, x, m, i);
    const float R0 = kDecay ? m.read[slot][at.row] : 1.f;
    const float R1 = kDecay ? m.read[slot][at.row + 8] : 1.f;
    Denominators den;
    if constexpr (kNorm == Norm::divides) den = denominators(p, m, i, R0, R1, at);
    product_wait<1>();
    fence_registers(P);
    uint32_t pw[4][4];
    weigh_scores<kRows, kDecay, kReverse, kRole, kNorm>(pw, P, E, den, p, m, i, at);

    product_wait<0>();
    fence_registers(Y);
    m.arrive(m.taken[i & 1]);
    if constexpr (kNorm == Norm::shifts)
      shift_state<kReverse>(Y, m.sums[slot], m.shift[slot], Place::opaque());
    decay_rows<kDecay>(Y, R0, R1);
    float2 flow = {0.f, 0.f};  // x_t . (part from the state)
    if constexpr (kCross) {
      if (kNorm != Norm::none)
        load_operands(x, s.x[0], Place::opaque());  // again: registers are few
      flow = rows_by_rows(x, Y);
    }
    product_fence();
#pragma unroll
    for (int j = 0; j < 4; ++j) product<true>(Y, pw[j], operand(vs + j * 2048), true);  // + P v
    product_commit();
    if constexpr (kCross) store_flow(out.flow + crossing + t, flow, float(p.scale), rows, at);
    product_wait<0>();
    fence_registers(Y);
    m.template release<kDecay>(i, job.chunks);
    if (kRole == Role::dk && kDecay && kNorm != Norm::none && out.whole)
      store_flow(out.whole + crossing + t, rows_by_rows(x, Y), float(p.scale), rows, at);
    finish_y<kNorm>(Y, den, p, job, c, rows, m.y[group], at);
    if constexpr (kRole == Role::dq) {
      group_sync(group);
      store_inner(out.inner + crossing + t, m, i, rows, float(p.scale), at);
    }
  }
}

#endif

}  // namespace
}  // namespace horner::cuda
