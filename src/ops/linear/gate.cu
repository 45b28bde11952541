// `linear`: gradient of the log-decay from what the sweeps left (Crossing in linear.cuh).
//
//   dg_i = sum_{t>=i} rho_t + sum_{s<i} kappa_s + sum_{j<i} inner_j + pi          inside a chunk
//   pi   = X - sum_s kappa_s          what flows past the chunk; X: what flows out of it
//   X'   = pi + sum_t rho_t           of the chunk before
// Where both states were kept, pi = e^{G_C} <Z, S> itself; where the chunk lets less than 2^-10 through, 0:
// the errors of X, which decay does not shrink, would be larger.
#include "ops/linear/linear.cuh"

namespace horner::cuda {
namespace {

constexpr int kWarps = 8, kAtOnce = 32;  // chunks

__device__ float warp_sum(float x) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) x += __shfl_xor_sync(~0u, x, d);
  return x;
}

// Block (n, j): the inner product of the two states that head n kept at anchor j.
__global__ void anchor_kernel(const ChunkedGate p) {
  __shared__ float sums[4];
  const int64_t at = int64_t(blockIdx.x) * p.anchors + blockIdx.y;
  const int64_t size = int64_t(p.blocks) * p.rows * 64;
  const float *a = p.rho.state + at * size, *b = p.kappa.state + at * size;
  float sum = 0.f;
  for (int64_t i = threadIdx.x; i < size; i += blockDim.x) sum += a[i] * b[i];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) p.product[at] = p.scale * (sums[0] + sums[1] + sums[2] + sums[3]);
}

struct Pair {
  float a, b;  // of tokens 2 l and 2 l + 1 of a chunk
};

// A block owns one head of g and walks back over 32 chunks at a time: each warp sums four of them, warp 0
// carries X through all, each warp writes its four. A lane has two tokens of a chunk.
__global__ void __launch_bounds__(kWarps * 32) gate_kernel(const ChunkedGate p) {
  __shared__ float rho_sum[kAtOnce], kappa_sum[kAtOnce], factor[kAtOnce], pi[kAtOnce];
  const int64_t groups = p.H / p.group, b = blockIdx.x / groups, group = blockIdx.x % groups;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t chunks = (p.T + kChunk - 1) / kChunk;
  const float* g = static_cast<const float*>(p.g.data) + b * p.g.b + group * p.g.h;

  for (int n = 0; n < p.group; ++n) {
    const int64_t bh = b * p.H + group * p.group + n;
    const auto load = [&](const float* from, int64_t t) {
      Pair x{0.f, 0.f};
      for (int j = 0; j < p.blocks; ++j) {
        const float* row = from + (int64_t(j) * p.B * p.H + bh) * p.T;
        if (t < p.T) x.a += row[t];
        if (t + 1 < p.T) x.b += row[t + 1];
      }
      return x;
    };
    float X = 0.f;
    for (int64_t top = chunks - 1; top >= 0; top -= kAtOnce) {  // chunks top, top - 1, ..
      for (int i = warp; i < kAtOnce && top - i >= 0; i += kWarps) {
        const int64_t t = (top - i) * kChunk + 2 * lane;
        const Pair rho = load(p.rho.flow, t), kappa = load(p.kappa.flow, t);
        const float decay =
            (t < p.T ? g[t * p.g.t] : 0.f) + (t + 1 < p.T ? g[(t + 1) * p.g.t] : 0.f);
        const float r = warp_sum(rho.a + rho.b), k = warp_sum(kappa.a + kappa.b);
        const float G = warp_sum(decay);
        if (lane == 0) {
          rho_sum[i] = r;
          kappa_sum[i] = k;
          factor[i] = __expf(G);  // e^{G_C}
        }
      }
      __syncthreads();
      if (warp == 0) {  // X' = through (X - sum kappa) + sum rho, composed over the lanes
        const int64_t c = top - lane;
        float slope = 1.f, offset = 0.f, known = 0.f;
        bool kept = false;
        if (c >= 0) {
          kept = c == chunks - 1 || c % kAnchor == kAnchor - 1;
          if (kept) known = factor[lane] * p.product[bh * p.anchors + c / kAnchor];
          const bool through = !kept && factor[lane] >= 0x1p-10f && (c > 0 || p.carried);
          slope = through ? 1.f : 0.f;
          offset = rho_sum[lane] + known - slope * kappa_sum[lane];
        }
        const float passes = slope;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
          const float before = __shfl_up_sync(~0u, offset, d),
                      steeper = __shfl_up_sync(~0u, slope, d);
          if (lane >= d) {
            offset += slope * before;
            slope *= steeper;
          }
        }
        const float after = slope * X + offset;
        float entering = __shfl_up_sync(~0u, after, 1);
        if (lane == 0) entering = X;
        if (c >= 0) pi[lane] = known + passes * (entering - kappa_sum[lane]);
        X = __shfl_sync(~0u, after, 31);
      }
      __syncthreads();
      for (int i = warp; i < kAtOnce && top - i >= 0; i += kWarps) {
        const int64_t t = (top - i) * kChunk + 2 * lane;
        const Pair rho = load(p.rho.flow, t), kappa = load(p.kappa.flow, t);
        const Pair inner = load(p.rho.inner, t);
        float later = rho.a + rho.b, earlier = kappa.a + inner.a + kappa.b + inner.b;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
          const float down = __shfl_down_sync(~0u, later, d), up = __shfl_up_sync(~0u, earlier, d);
          if (lane + d < 32) later += down;
          if (lane >= d) earlier += up;
        }
        later = __shfl_down_sync(~0u, later, 1);  // of the lanes after this one
        earlier = __shfl_up_sync(~0u, earlier, 1);
        if (lane == 31) later = 0.f;
        if (lane == 0) earlier = 0.f;
        const float first = later + rho.b + rho.a + earlier + pi[i];
        const float second = later + rho.b + earlier + kappa.a + inner.a + pi[i];
        float* to = p.dg + (b * p.T + t) * groups + group;
        if (t < p.T) to[0] = (n > 0 ? to[0] : 0.f) + first;
        if (t + 1 < p.T) to[groups] = (n > 0 ? to[groups] : 0.f) + second;
      }
      __syncthreads();
    }
  }
}

}  // namespace

cudaError_t chunked_gate(const ChunkedGate& p, cudaStream_t stream) {
  anchor_kernel<<<dim3(unsigned(p.B * p.H), unsigned(p.anchors)), 128, 0, stream>>>(p);
  gate_kernel<<<unsigned(p.B * p.H / p.group), kWarps * 32, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace horner::cuda
