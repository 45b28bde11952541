// `linear`, level 2: one sweep over chunks of 64 tokens on Hopper's tensor cores, as a block does it.
#pragma once

#include "ops/linear/normaliser.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 4 * kGroup;

enum class Role { plain, dq, dk, ends };  // dq and dk fill a Crossing, and read x; ends has no y
template <Role kRole>
constexpr bool kCrosses = kRole == Role::dq || kRole == Role::dk;

template <int kRows, Role kRole>
struct Stage {
  unsigned char q[kRows / 64][kTileBytes];
  unsigned char k[kRows / 64][kTileBytes];
  unsigned char v[1][kTileBytes];
};
template <int kRows>
struct StageWithX : Stage<kRows, Role::plain> {
  unsigned char x[1][kTileBytes];
};
template <int kRows>
struct Stage<kRows, Role::dq> : StageWithX<kRows> {};
template <int kRows>
struct Stage<kRows, Role::dk> : StageWithX<kRows> {};
template <int kRows>
struct Stage<kRows, Role::ends> {
  unsigned char k[kRows / 64][kTileBytes];
  unsigned char v[1][kTileBytes];
};

template <int kRows, Role kRole>
struct Memory {
  static constexpr int kStages = kRole == Role::ends ? 6 : kRole == Role::plain ? 4 : 3;
  static constexpr int kReaders = kRole == Role::ends ? kRows / 16 : 8;  // warps that read a stage
  Stage<kRows, kRole> stage[kStages];
  unsigned char S[2][kRows / 64]
                 [kTileBytes];     // the state entering a chunk, bf16; even ones, odd ones
  unsigned char y[2][kTileBytes];  // on its way out; a warp's rows are its own
  float sums[kStages][kRows];  // norm = sum: entering the chunk, forward by rows, else by columns
  float shift[kStages][64];    // Delta; forward the floor
  float G[kStages][64];        // log2 of the decay since the chunk's start
  float keys[kStages][64];     // less that of the gain
  float read[kStages][64];     // what scales q_t S
  uint2 write[kStages][32];    // what scales k_s^T v_s, in pairs
  float inner_columns[4][4][64], inner_rows[4][64];
  // Barriers: a stage has been loaded, is free again; a copy of the state is there, has been read.
  uint64_t full[kStages], free[kStages], copied[2], taken[2];

  __device__ void init(bool decay) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(shared_address(&full[i]), decay ? 33 : 1);
      barrier_init(shared_address(&free[i]), kReaders);
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared_address(&copied[i]), 4);
      barrier_init(shared_address(&taken[i]), 4);
    }
  }
  __device__ Stage<kRows, kRole>& at(int i) { return stage[i % kStages]; }
  __device__ void wait_full(int i) {
    barrier_wait(shared_address(&full[i % kStages]), i / kStages & 1);
  }
  // A stage is free when chunk i - kStages has been read by all. Decays are written by threads, not by copies: their
  // readers and the writer meet at a barrier of the hardware.
  template <bool kDecay>
  __device__ void wait_free(int i) {
    if (i < kStages) return;
    if constexpr (kDecay) {
      asm volatile("bar.sync %0, %1;" ::"r"(3 + i % kStages), "n"(32 * kReaders + 32) : "memory");
    } else {
      barrier_wait(shared_address(&free[i % kStages]), (i / kStages - 1) & 1);
    }
  }
  template <bool kDecay>
  __device__ void release(int i, int chunks) {
    if constexpr (!kDecay) {
      arrive(free[i % kStages]);
    } else if (i + kStages < chunks) {
      asm volatile("bar.arrive %0, %1;" ::"r"(3 + i % kStages), "n"(32 * kReaders + 32) : "memory");
    }
  }
  __device__ void wait_copied(int i) { barrier_wait(shared_address(&copied[i & 1]), i / 2 & 1); }
  __device__ void wait_taken(int i) {  // by chunk i - 2
    if (i >= 2) barrier_wait(shared_address(&taken[i & 1]), (i / 2 - 1) & 1);
  }
  // A warp is done.
  __device__ static void arrive(uint64_t& barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&barrier));
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

template <int kRows, bool kReverse, Role kRole, Norm kNorm>
__device__ void load_stage(
    const Sweep& p, const Maps& maps, const Job& job, Memory<kRows, kRole>& m, int i
) {
  const int t = chunk_at<kReverse>(job, i) * 64, slot = i % m.kStages;
  Stage<kRows, kRole>& s = m.at(i);
  const uint32_t full = shared_address(&m.full[slot]);
  barrier_expect(full, sizeof(Stage<kRows, kRole>) + norm_bytes<kNorm, kRows>(p.norm));
  if constexpr (kNorm == Norm::divides || kNorm == Norm::shifts)
    load_norm<kNorm, kRows, kReverse>(p, job, t, m.sums[slot], m.shift[slot], full);
#pragma unroll
  for (int n = 0; n < kRows / 64; ++n) {
    if constexpr (kRole != Role::ends)
      load_tile(shared_address(s.q[n]), &maps.q, full, 64 * n, job.h / p.q.group, t, job.b);
    load_tile(shared_address(s.k[n]), &maps.k, full, 64 * n, job.h / p.k.group, t, job.b);
  }
  load_tile(shared_address(s.v), &maps.v, full, job.first_column, job.h / p.v.group, t, job.b);
  if constexpr (kCrosses<kRole>)
    load_tile(shared_address(s.x), &maps.x, full, job.first_column, job.h / p.x.group, t, job.b);
}

// Log-decays of tokens 2 l and 2 l + 1 of a chunk, for lane l, and gains. Nothing is done to them here: that would wait
// for memory.
struct Logs {
  float2 g, gain;
};
template <bool kReverse, bool kGains>
__device__ Logs load_logs(const Sweep& p, const Job& job, int i) {
  const int lane = threadIdx.x % 32, chunk = chunk_at<kReverse>(job, min(i, job.chunks - 1));
  const int rows = tokens_in(p, chunk);
  const bool first = 2 * lane < rows, second = 2 * lane + 1 < rows, gains = kGains && p.gains;
  const float* g = head<float>(p.g, job) + (int64_t(chunk) * 64 + 2 * lane) * p.g.t;
  return {
      {first ? g[0] : 0.f, second ? g[p.g.t] : 0.f},
      {first && gains ? g[1] : 0.f, second && gains ? g[p.g.t + 1] : 0.f}};
}

// One warp: sums of the decays since the chunk's start, and the factors made of them.
// A reset (-inf) is held at 2^-127, which is 0: then no difference of two sums is NaN.
template <int kRows, bool kReverse, Role kRole, bool kGains>
__device__ void prepare_decay(const Logs& logs, Memory<kRows, kRole>& m, int i) {
  const int lane = threadIdx.x % 32;
  constexpr float kLog2e = 1.4426950408889634f;
  const float2 g = {fmaxf(logs.g.x * kLog2e, -127.f), fmaxf(logs.g.y * kLog2e, -127.f)};
  float sum = g.x + g.y;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const float other = __shfl_up_sync(~0u, sum, d);
    if (lane >= d) sum += other;
  }
  const float last = __shfl_sync(~0u, sum, 31), before = __shfl_up_sync(~0u, sum, 1);
  const float2 both = {(lane == 0 ? 0.f : before) + g.x, sum};
  float2 keys = both;
  if (kGains) keys = {both.x - logs.gain.x * kLog2e, both.y - logs.gain.y * kLog2e};
  const float2 since = {exp2_fast(both.x), exp2_fast(both.y)};                // e^{G_t}
  const float2 until = {exp2_fast(last - keys.x), exp2_fast(last - keys.y)};  // e^{G_C - G_t}
  const int slot = i % m.kStages;
  reinterpret_cast<float2*>(m.G[slot])[lane] = both;
  if (kGains) reinterpret_cast<float2*>(m.keys[slot])[lane] = keys;
  reinterpret_cast<float2*>(m.read[slot])[lane] = kReverse ? until : since;
  m.write[slot][lane] = weight_pair(kReverse ? since : until);
}

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

// --- the warpgroup that feeds the others ---------------------------------------------------------------

// Loads stages and prepares their decays. Only the first warp of the group has work; where a chunk takes less time than
// its decays take to arrive, all four have, in turn.
template <int kRows, bool kDecay, bool kReverse, Role kRole, Norm kNorm>
__device__ void feed(const Sweep& p, const Maps& maps, const Job& job, Memory<kRows, kRole>& m) {
  const Place at;
  constexpr int kFeeders = kRole == Role::ends ? 4 : 1;
  if (at.warp >= kFeeders) return;
  constexpr bool kGains = kDecay && kNorm != Norm::none;
  const int first = kFeeders == 1 ? 0 : at.warp;
  Logs logs{};
  if (kDecay) logs = load_logs<kReverse, kGains>(p, job, first);
  for (int i = first; i < job.chunks; i += kFeeders) {
    m.template wait_free<kDecay>(i);
    if (at.lane == 0) load_stage<kRows, kReverse, kRole, kNorm>(p, maps, job, m, i);
    if (kDecay) {
      prepare_decay<kRows, kReverse, kRole, kGains>(logs, m, i);
      logs = load_logs<kReverse, kGains>(p, job, i + kFeeders);
      barrier_arrive(shared_address(&m.full[i % m.kStages]));
    }
    __syncwarp();
  }
}

// --- the warpgroup that carries the state ---------------------------------------------------------

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
  for (int n = 0; n < kTiles; ++n) settle(S[n]);
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

// --- the warpgroups that compute y ----------------------------------------------------------------

// P_ts times M_ts for s <= t, else 0; mirrored in reverse. G of the queries, and of the keys. A masked exponent may be
// positive: its power is dropped.
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

// Lanes that differ in bit 2 kHalf swap halves of 2 kHalf values and add: each keeps its own half.
template <int kHalf>
__device__ void add_halves(float (&x)[16]) {
  const bool upper = threadIdx.x & (2 * kHalf);
#pragma unroll
  for (int e = 0; e < kHalf; ++e) {
    const float low = x[e], high = x[e + kHalf];
    x[e] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, 2 * kHalf);
  }
}

// The threads of one of the groups.
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
  add_halves<8>(columns);  // over the lanes of the same columns; each keeps two of 16 sums
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

// x_t.y_t of the thread's two rows, this lane's part; and the sum to memory.
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

// y_t = e^{G_t} q_t S + sum_{s<=t} M_ts (q_t.k_s) v_s. Registers: P = q k^T and y, and for the crossing sums
// x and E = x v^T. One group has the even chunks, one the odd: while one waits for its products, the other computes.
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
    const uint32_t qs = shared_address(s.q), ks = shared_address(s.k), vs = shared_address(s.v);
    m.wait_full(i);

    uint32_t x[4][4];
    if constexpr (kCross) load_operands(x, s.x[0], at);
    float P[32], Y[32], E[32];
    product_fence();
#pragma unroll
    for (int j = 0; j < kRows / 16; ++j) {  // P = q k^T
      const uint32_t step = (j / 4) * kTileBytes + (j % 4) * 32;
      product<false, false>(P, operand(qs + step), operand(ks + step), j > 0);
    }
    if constexpr (kRole == Role::dq) {
#pragma unroll
      for (int j = 0; j < 4; ++j) product<false>(E, x[j], operand(vs + j * 32), j > 0);  // x v^T
    }
    product_commit();
    m.wait_copied(i);
    product_fence();
#pragma unroll
    for (int j = 0; j < kRows / 16; ++j) {  // Y = q S
      const uint32_t step = (j / 4) * kTileBytes + (j % 4) * 32;
      const uint32_t S = shared_address(m.S[i & 1]);
      if constexpr (kTurned<kDecay, kNorm>) {
        product<false, false>(Y, operand(qs + step), operand(S + step), j > 0);
      } else {
        product<false, true>(Y, operand(qs + step), operand(S + j * 2048), j > 0);
      }
    }
    product_commit();

    const float R0 = kDecay ? m.read[slot][at.row] : 1.f;
    const float R1 = kDecay ? m.read[slot][at.row + 8] : 1.f;
    Denominators den;
    if constexpr (kNorm == Norm::divides) {
      den = rows_by_sums<kRows>(s.q, m.sums[slot], R0, R1, at);
      if (p.norm.floor)
        den.floor[0] = m.shift[slot][at.row], den.floor[1] = m.shift[slot][at.row + 8];
    }
    product_wait<1>();
    settle(P);
    if constexpr (kNorm == Norm::shifts) shift_products<kReverse>(P, m.shift[slot], Place::anew());
    constexpr bool kGains = kDecay && kNorm != Norm::none;
    decay_mask<kDecay, kReverse>(P, m.G[slot], kGains ? m.keys[slot] : m.G[slot], at);
    if constexpr (kRole == Role::dq) {
      settle(E);
      sum_inner(P, E, m, i, at);
    }
    uint32_t pw[4][4];
#pragma unroll
    for (int e = 0; e < 16; ++e) pw[e / 4][e % 4] = pack(P[2 * e], P[2 * e + 1]);
    if constexpr (kNorm == Norm::divides) add_weights(den, p.norm.floor != nullptr, P, pw);

    product_wait<0>();
    settle(Y);
    m.arrive(m.taken[i & 1]);
    if constexpr (kNorm == Norm::shifts)
      shift_state<kReverse>(Y, m.sums[slot], m.shift[slot], Place::anew());
    if constexpr (kDecay) {
#pragma unroll
      for (int e = 0; e < 32; ++e) Y[e] *= e / 2 % 2 ? R1 : R0;  // e^{G_t} q_t S
    }
    float2 flow = {0.f, 0.f};  // x_t . (part from the state)
    if constexpr (kCross) {
      if (kNorm != Norm::none) load_operands(x, s.x[0], Place::anew());  // as registers are few
      flow = rows_by_rows(x, Y);
    }
    product_fence();
#pragma unroll
    for (int j = 0; j < 4; ++j) product<true>(Y, pw[j], operand(vs + j * 2048), true);  // + P v
    product_commit();
    if constexpr (kCross) store_flow(out.flow + crossing + t, flow, float(p.scale), rows, at);
    product_wait<0>();
    settle(Y);
    m.template release<kDecay>(i, job.chunks);
    if (kRole == Role::dk && kGains && out.whole)
      store_flow(out.whole + crossing + t, rows_by_rows(x, Y), float(p.scale), rows, at);
    if constexpr (kNorm == Norm::divides) {
      divide(Y, den, p, job, t, rows, at);
      store_y(Y, 1.f, p.y, p, job, c, m.y[group], at);
      if (p.norm.rest.data) {
        leave_rest(Y);
        store_y(Y, 1.f, p.norm.rest, p, job, c, m.y[group], at);
      }
    } else {
      store_y(Y, float(p.scale), p.y, p, job, c, m.y[group], at);
    }
    if constexpr (kRole == Role::dq) group_sync(group);
    if (kRole == Role::dq && at.thread < rows) {
      const auto& columns = m.inner_columns[i & 3];
      const float later = (columns[0][at.thread] + columns[1][at.thread]) +
                          (columns[2][at.thread] + columns[3][at.thread]);
      out.inner[crossing + t + at.thread] =
          (later - m.inner_rows[i & 3][at.thread]) * float(p.scale);
    }
  }
}

// A block owns 64 columns of the state of one (b, h), and walks over the chunks of one part of the time: one warpgroup carries the
// state, two compute y from the copies of it, and a fourth feeds them. Shared memory: kStages stages of q, k, v, and
// the bf16 copies of the state. Each waits for no more than it needs.
template <int kRows, bool kDecay, bool kReverse, Role kRole, Norm kNorm>
__device__ void sweep(
    const Sweep& p, const Maps& maps, const Crossing& out, unsigned char* raw, unsigned index
) {
  Memory<kRows, kRole>& m = *reinterpret_cast<Memory<kRows, kRole>*>(raw);
  const Job job = job_at(p, index);
  if (threadIdx.x == 0) {
    m.init(kDecay);
    fence_async_proxy();
  }
  __syncthreads();
  const int group = threadIdx.x / kGroup;
  constexpr bool kTurn = kTurned<kDecay, kNorm>;
  constexpr bool kGains = kDecay && kNorm != Norm::none;  // whose feeder has more to do
  if (group < 2) {
    take_registers<kGains && !kTurn ? 168 : 176>();
    compute_y<kRows, kDecay, kReverse, kRole, kNorm>(p, out, job, m, group);
  } else if (group == 2) {
    if constexpr (kTurn) give_registers<120>();
    carry_state<kRows, kDecay, kReverse, kRole, kTurn>(p, out, job, m);
  } else {
    give_registers<kGains ? 40 : 32>();
    feed<kRows, kDecay, kReverse, kRole, kNorm>(p, maps, job, m);
  }
}

#endif

}  // namespace
}  // namespace horner::cuda
