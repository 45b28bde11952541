// `linear` with a decay per key: the output of each chunk from the state that enters it (per_key.cuh).
#include <algorithm>

#include "cuda/launch.cuh"
#include "ops/linear/per_key/per_key.cuh"

namespace horner::cuda {
namespace {

size_t memory_bytes(int keys, int width) {
  return size_t(keys) * width * 2 + 64 * width * 2 + 128 * std::max(keys, width) + 4096 + 512;
}

// Columns of A: the early stripes that this warp's stripe sees.
struct EarlyScores {
  float near[2][4] = {}, far[2][2][4] = {};  // in the same half chunk; in the other half
};

// Adds one slice of keys to A, and stashes q e^G. early: (2 levels,2,2,32), totals: (4,32) decays of the stripes.
__device__ __forceinline__ void add_slice(
    InnerScores<false>& inner,
    EarlyScores& from,
    const Raw& x,
    bool narrow_g,
    uint4* early,
    float* totals,
    uint4* stash,
    const Place& me
) {
  const Decays d(x, narrow_g);
  Values factor;
  Fragment m;
  inner.add_same(x, me);
#pragma unroll
  for (int half = 1; half < 8; half *= 2) {
    inner_level(factor, m, half, d, x, narrow_g, me);
    inner.add(half, m, me);
  }
  inner_level(factor, m, 8, d, x, narrow_g, me);
  inner.add_eight(m);
  Values since;
  d.sum(since, up_to(me));
  float total[8];
  stripe_total(total, since, me);
  if (me.r == 0) store_eight(totals + kSlice * me.warp + 8 * me.i, total);
  __syncthreads();
  Fragment late16, late32;
  outer_level<16>(late16, since, totals, x, me);
  outer_level<32>(late32, since, totals, x, me);
  if (!late_stripe<16>(me)) late16.store(early + 64 * (me.warp / 2), me.lane);
  if (!late_stripe<32>(me)) late32.store(early + 128 + 64 * me.warp, me.lane);
  Factors(to_start(me), totals, me).weigh(m, x.q[0], x.q[1], since);
  m.store_operands(stash, me.lane);
  __syncthreads();
  if (late_stripe<16>(me)) {
    m.load(early + 64 * (me.warp / 2), me.lane);
#pragma unroll
    for (int n = 0; n < 2; ++n) multiply_rows(from.near[n], late16, m, n);
  }
  if (late_stripe<32>(me)) {
#pragma unroll
    for (int stripe = 0; stripe < 2; ++stripe) {
      m.load(early + 128 + 64 * stripe, me.lane);
#pragma unroll
      for (int n = 0; n < 2; ++n) multiply_rows(from.far[stripe][n], late32, m, n);
    }
  }
}

// O = (Q * e^G) S + A V. S and v: in shared memory.
template <int kWidth>
__device__ __forceinline__ void multiply_output(
    float (&y)[kWidth / 64][8][4],
    const uint32_t (&a)[4][4],
    const uint4* stash,
    uint32_t S,
    uint32_t v,
    int slices,
    const Place& me
) {
#pragma unroll
  for (int t = 0; t < kWidth / 64; ++t) {
    multiply_state(y[t], stash, 64, S + t * slices * kSlice * 128, slices, me);
    const uint32_t tile = v + t * kTileBytes;
    if (me.warp >= 1) multiply_values(y[t], a[0], tile, 0, me);
    if (me.warp >= 2) multiply_values(y[t], a[1], tile, 1, me);
    if (me.warp == 3) multiply_values(y[t], a[2], tile, 2, me);
    multiply_values(y[t], a[3], tile, me.warp, me);
  }
}

// A block owns one chunk of one head, a warp one stripe. Shared memory: the state, v, q e^G of the warp's rows (later y);
// and of one slice the early rows of levels 16 and 32 and the decays of the stripes.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, 3) output_kernel(const __grid_constant__ PerKey p) {
  HORNER_DYNAMIC_MEMORY(memory);
  const Place me(int(threadIdx.x));
  const int slices = (p.K + kSlice - 1) / kSlice, keys = slices * kSlice;
  const unsigned slot = blockIdx.x / unsigned(p.H);
  const Heads h(int(blockIdx.x % unsigned(p.H)), p.group);
  const Chunk c = chunk_at(p.sequences, slot);
  if (c.rows <= 0) return;
  unsigned char *S = memory, *v = S + keys * kWidth * 2, *own = v + 64 * kWidth * 2;
  uint4* early = reinterpret_cast<uint4*>(own + 128 * max(keys, kWidth));  // (2 levels,2,2,32)
  float* totals = reinterpret_cast<float*>(early + 256);                   // (4,32)
  own += me.warp * 32 * max(keys, kWidth);
  uint4* stash = reinterpret_cast<uint4*>(own);  // (slices,2,32): q e^G

  const int64_t group_head = int64_t(slot) * p.states + h.shared;
  const unsigned char* states = static_cast<const unsigned char*>(p.S);
  prefetch_slices(p, c, h, me);
  load_tokens<kWidth>(shared_address(v), p.v, c, h, p.V, me);
  load_state<kWidth>(shared_address(S), states + group_head * keys * kWidth * 2, keys, me);
  copy_commit();

  InnerScores<false> inner;
  EarlyScores from;
  for (int s = 0; s < slices; ++s) {
    Raw x;
    SliceRows(p, c, h, me).load(x, p, c.rows, s, me);
    add_slice(inner, from, x, p.narrow_g, early, totals, stash + 64 * s, me);
  }
  uint32_t a[4][4];  // A, over the tokens of stripes 0 .. warp
  to_operand(a[0], from.far[0]);
  to_operand(a[1], from.far[1]);
  if (me.warp == 1) to_operand(a[0], from.near);
  to_operand(a[2], from.near);
  inner.operand(a[3]);
  copy_wait<0>();
  __syncthreads();
  float y[kWidth / 64][8][4] = {};
  multiply_output<kWidth>(y, a, stash, shared_address(S), shared_address(v), slices, me);
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kWidth / 64; ++t)
    store_rows(y[t], p.scale, own + 2048 * t, p.out, false, c, h, 64 * t, p.V, me);
}

template <int kWidth>
cudaError_t run(const PerKey& p, cudaStream_t stream) {
  const size_t bytes = memory_bytes(padded_keys(p.K), kWidth);
  return launch(output_kernel<kWidth>, p.sequences.slots() * p.H, kThreads, bytes, stream, p);
}

}  // namespace

cudaError_t key_output(const PerKey& p, cudaStream_t stream) {
  return p.V <= 64 ? run<64>(p, stream) : run<128>(p, stream);
}

}  // namespace horner::cuda
