// `linear`: gradient of the log-decay from what the sweeps left (Crossing in linear.cuh).
//
//   dg_i = sum_{t>=i} rho_t + sum_{s<i} kappa_s + sum_{j<i} inner_j + pi          inside a chunk
//   pi   = X - sum_s kappa_s          flows through the whole chunk; X: flows out of its end
//   X'   = pi + sum_t rho_t           X of the chunk before
// At an anchor both states were kept, and pi = e^{G_C} <Z, S> is computed directly. If a chunk lets less than 2^-10 through,
// pi = 0: the errors of X are not shrunk by the decay and would be larger than pi.
#include "ops/linear/linear.cuh"

namespace horner::cuda {
namespace {

constexpr int kAtOnce = 32, kProducts = 256;  // chunks of a block; threads of an inner product
static_assert(kAtOnce % kAnchor == 0 && kAtOnce % kSumAnchor == 0);

__device__ float warp_sum(float x) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) x += __shfl_xor_sync(~0u, x, d);
  return x;
}

// Block (n, j) computes the inner product of the two states that head n kept at anchor j. It loads 16 KB of each at a time.
__global__ void __launch_bounds__(kProducts) anchor_kernel(const ChunkedGate p) {
  __shared__ float sums[kProducts / 32];
  const int64_t at = int64_t(blockIdx.x) * p.anchors + blockIdx.y;
  const int size = p.blocks * p.rows * 64 / 4;  // a multiple of 4 kProducts
  const float4* a = reinterpret_cast<const float4*>(p.rho.state) + at * size + threadIdx.x;
  const float4* b = reinterpret_cast<const float4*>(p.kappa.state) + at * size + threadIdx.x;
  float sum = 0.f;
  for (int i = 0; i < size; i += 4 * kProducts) {
    float4 x[4], y[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) x[n] = a[i + n * kProducts], y[n] = b[i + n * kProducts];
#pragma unroll
    for (int n = 0; n < 4; ++n)
      sum += (x[n].x * y[n].x + x[n].y * y[n].y) + (x[n].z * y[n].z + x[n].w * y[n].w);
  }
  if (p.z.sums && threadIdx.x < p.z.width) {  // the column for v = 1
    const int64_t chunks = (p.T + kChunk - 1) / kChunk;
    const int64_t c = min((int64_t(blockIdx.y) + 1) * p.each - 1, chunks - 1);
    const int64_t b = blockIdx.x / p.H, h = blockIdx.x % p.H;
    const auto entering = [&](const Normaliser& n, int64_t i) {
      const int64_t head = ((1 + i) * p.B + b) * n.heads + h / (p.H / n.heads);
      return n.sums[head * n.width + threadIdx.x];
    };
    sum -= entering(p.z, c) * entering(p.zeta, chunks - 1 - c);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = warp_sum(threadIdx.x < kProducts / 32 ? sums[threadIdx.x] : 0.f);
  if (threadIdx.x == 0) p.product[at] = p.scale * sum;
}

struct Pair {
  float a, b;  // of tokens 2 l and 2 l + 1 of a chunk
};

// X' = slope (X - sum kappa) + sum rho + known over chunks, as a scan over the lanes: lane l has chunk c = top - l. The
// result is pi of that chunk, the flow through all of it.
__device__ __forceinline__ float scan_chunks(
    const ChunkedGate& p,
    int64_t bh,
    int64_t c,
    int64_t bottom,
    int64_t chunks,
    float factor,
    float rho_sum,
    float kappa_sum
) {
  const int lane = threadIdx.x % 32;
  float slope = 1.f, offset = 0.f, known = 0.f;
  if (c >= bottom) {
    const bool kept = c == chunks - 1 || c % p.each == p.each - 1;
    if (kept) known = factor * p.product[bh * p.anchors + c / p.each];
    const bool through = !kept && factor >= 0x1p-10f && (c > 0 || p.carried);
    slope = through ? 1.f : 0.f;
    offset = rho_sum + known - slope * kappa_sum;
  }
  const float passes = slope;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const float before = __shfl_up_sync(~0u, offset, d), steeper = __shfl_up_sync(~0u, slope, d);
    if (lane >= d) {
      offset += slope * before;
      slope *= steeper;
    }
  }
  const float entering = __shfl_up_sync(~0u, offset, 1);  // unused in lane 0: an anchor
  return known + (passes > 0.f ? entering - kappa_sum : 0.f);
}

// dg of a lane's two tokens inside their chunk: rho of this token and later ones, kappa and inner of earlier ones.
__device__ __forceinline__ Pair sums_inside(const Pair& rho, const Pair& kappa, const Pair& inner) {
  const int lane = threadIdx.x % 32;
  float later = rho.a + rho.b, earlier = kappa.a + inner.a + kappa.b + inner.b;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const float down = __shfl_down_sync(~0u, later, d), up = __shfl_up_sync(~0u, earlier, d);
    if (lane + d < 32) later += down;
    if (lane >= d) earlier += up;
  }
  later = __shfl_down_sync(~0u, later, 1);  // the sum over the lanes after this one
  earlier = __shfl_up_sync(~0u, earlier, 1);
  if (lane == 31) later = 0.f;
  if (lane == 0) earlier = 0.f;
  return {later + rho.b + rho.a + earlier, later + rho.b + earlier + kappa.a + inner.a};
}

// Block (n, j) owns 32 chunks of head n of g. The last of them is an anchor, so the block needs no X from later chunks. A
// warp owns one chunk, a lane two tokens. Each warp sums its chunk, warp 0 carries X through all chunks, each warp writes dg.
__global__ void __launch_bounds__(kAtOnce * 32) gate_kernel(const ChunkedGate p) {
  __shared__ float rho_sum[kAtOnce], kappa_sum[kAtOnce], factor[kAtOnce], pi[kAtOnce];
  const int64_t groups = p.H / p.group, b = blockIdx.x / groups, group = blockIdx.x % groups;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t chunks = (p.T + kChunk - 1) / kChunk;
  const int64_t bottom = int64_t(blockIdx.y) * kAtOnce, top = min(bottom + kAtOnce, chunks) - 1;
  const int64_t t = (top - warp) * kChunk + 2 * lane;
  const bool first = top - warp >= bottom && t < p.T, second = first && t + 1 < p.T;  // they exist
  float decay = 0.f;
  const float* g = static_cast<const float*>(p.g.data) + b * p.g.b + group * p.g.h;
  if (first) decay += g[t * p.g.t];
  if (second) decay += g[(t + 1) * p.g.t];
  decay = warp_sum(decay);
  if (lane == 0) factor[warp] = __expf(decay);  // e^{G_C}

  Pair dg{0.f, 0.f};
  for (int n = 0; n < p.group; ++n) {
    const int64_t bh = b * p.H + group * p.group + n;
    const auto load = [&](const float* from) {
      Pair x{0.f, 0.f};
#pragma unroll
      for (int j = 0; j < 2; ++j) {  // unrolled, so that all loads are issued at once
        const float* row = from + (int64_t(j) * p.B * p.H + bh) * p.T;
        if (j < p.blocks && first) x.a += row[t];
        if (j < p.blocks && second) x.b += row[t + 1];
      }
      return x;
    };
    const Pair rho = load(p.rho.flow), kappa = load(p.kappa.flow), inner = load(p.rho.inner);
    const float r = warp_sum(rho.a + rho.b), k = warp_sum(kappa.a + kappa.b);
    if (lane == 0) rho_sum[warp] = r, kappa_sum[warp] = k;
    __syncthreads();
    if (warp == 0) {
      pi[lane] = scan_chunks(
          p, bh, top - lane, bottom, chunks, factor[lane], rho_sum[lane], kappa_sum[lane]
      );
    }
    __syncthreads();
    const Pair inside = sums_inside(rho, kappa, inner);
    dg.a += inside.a + pi[warp];
    dg.b += inside.b + pi[warp];
    __syncthreads();
  }
  float* to = p.dg + (b * p.T + t) * groups + group;
  if (first) to[0] = dg.a;
  if (second) to[groups] = dg.b;
}

}  // namespace

cudaError_t chunked_gate(const ChunkedGate& p, cudaStream_t stream) {
  anchor_kernel<<<dim3(unsigned(p.B * p.H), unsigned(p.anchors)), kProducts, 0, stream>>>(p);
  const int64_t chunks = (p.T + kChunk - 1) / kChunk, rounds = (chunks + kAtOnce - 1) / kAtOnce;
  gate_kernel<<<dim3(unsigned(p.B * p.H / p.group), unsigned(rounds)), kAtOnce * 32, 0, stream>>>(p
  );
  return cudaGetLastError();
}

}  // namespace horner::cuda
