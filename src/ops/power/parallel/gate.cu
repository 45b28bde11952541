// `power`: gradient of the log-decay, from what flows into, out of and through each chunk.
//
//   dg_i = sum_{t>=i} rho_t + sum_{s<i} (kappa_s + late_s - early_s) + pi        inside a chunk
//   pi   = X - sum_s kappa_s          flows through the whole chunk; X: flows out of its end
//   X'   = pi + sum_t rho_t           X of the chunk before
// At the end of a segment X = <Z, S> of the kept states. A single chunk computes pi = e^{G_C} <dS_T, S_0> directly. If a chunk
// lets less than 2^-10 through, pi = 0: the errors of X are not shrunk by the decay and would be larger than pi.
#include "ops/power/chunked/chunked.cuh"

namespace horner::cuda {
namespace {

__device__ float warp_sum(float x) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) x += __shfl_xor_sync(~0u, x, d);
  return x;
}

// Block (bh, n) computes the flow from segment n into n + 1, <S, W Z + dS>, over all blocks of columns.
template <int kK, int kV>
__global__ void __launch_bounds__(kPowerThreads, 1)
    between_kernel(const __grid_constant__ PowerSweep p, float* between) {
  __shared__ float sums[kWarps];
  const Lane at;
  Job job(p, int(blockIdx.x));
  job.segment = int(blockIdx.y);
  const int64_t head = job.bh / p.state_group;
  float end = 0.f;  // the decay from here to the end, which scales dS
  if (p.last_grad != nullptr && job.h % p.state_group == 0) {
    for (int n = job.segment + 1; n < p.segments; ++n) end += p.passed[job.bh * p.segments + n];
    end = exp2_fast(end);
  }
  float sum = 0.f;
  for (job.block = 0; job.block < p.blocks; ++job.block) {
    const float* S = state_slot<kK, kV>(p.S, p, job, p.segments, job.segment);
    const float* Z = state_slot<kK, kV>(p.Z, p, job, p.segments, job.segment + 1);
    for_state<kK, kV>(p, job, [&](int n, int m, int e, int i, int j, int column) {
      const int monomial = monomial_at(p, i, j), r = register_at<kV>(n, m, e);
      if (i > j || monomial < 0) return;
      const bool ones = column == p.V;
      float dual = weight_of(p, i, j) * (Z[r] + (ones ? Z[r + 4] : 0.f));
      if (end != 0.f && (!ones || job.block == 0))
        dual += end * p.last_grad[state_at(p, head, monomial, column)];
      sum += (S[r] + (ones ? S[r + 4] : 0.f)) * dual;
    });
  }
  sum = warp_sum(sum);
  if (at.lane == 0) sums[at.warp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int n = 1; n < kWarps; ++n) sum += sums[n];
  between[int64_t(job.bh) * p.segments + job.segment] = sum;
}

// Block (b group, n) walks back over segment n. A thread owns one token of a chunk.
__global__ void __launch_bounds__(kC)
    gate_kernel(const __grid_constant__ PowerSweep p, const PowerGate to) {
  __shared__ float sums[4][kC / 32];
  const int64_t groups = p.H / p.state_group, b = blockIdx.x / groups, group = blockIdx.x % groups;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, segment = int(blockIdx.y);
  const int chunks = int((p.T + kC - 1) / kC), first = segment * p.length;
  for (int n = 0; n < p.state_group; ++n) {
    const Job job(p, int(b * p.H + group * p.state_group) + n);
    const auto load = [&](const float* from, int64_t t) {
      float x = 0.f;
      for (int j = 0; j < p.blocks && t < p.T; ++j)
        x += from[(int64_t(j) * p.B * p.H + job.bh) * p.T + t];
      return x;
    };
    float X = 0.f;
    if (segment < p.segments - 1) {
      X = to.between[int64_t(job.bh) * p.segments + segment];
    } else if (to.end != nullptr && n == 0) {
      X = to.end[blockIdx.x];
    }
    for (int c = min(first + p.length, chunks) - 1; c >= first; --c) {
      const int64_t t = int64_t(c) * kC + threadIdx.x;
      const float rho = load(p.rho, t), kappa = load(p.kappa, t);
      const float earlier = kappa + load(p.late, t) - load(p.early, t);
      const float g = t < p.T ? *row_of<float>(p.g, job, t) : 0.f;
      float after = rho, before = earlier;  // sums from this token to the end, and up to this token
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const float down = __shfl_down_sync(~0u, after, d), up = __shfl_up_sync(~0u, before, d);
        if (lane + d < 32) after += down;
        if (lane >= d) before += up;
      }
      const float all_kappa = warp_sum(kappa), decay = warp_sum(g);
      if (lane == 0) sums[0][warp] = after, sums[1][warp] = all_kappa, sums[2][warp] = decay;
      if (lane == 31) sums[3][warp] = before;
      __syncthreads();
      float rhos = 0.f, kappas = 0.f, G = 0.f;
#pragma unroll
      for (int w = 0; w < kC / 32; ++w) {
        rhos += sums[0][w];
        kappas += sums[1][w];
        G += sums[2][w];
        if (w > warp) after += sums[0][w];
        if (w < warp) before += sums[3][w];
      }
      const bool through = __expf(G) >= 0x1p-10f && (c > 0 || p.first != nullptr);
      float pi = through ? X - kappas : 0.f;
      if (chunks == 1) pi = to.through != nullptr && n == 0 ? to.through[blockIdx.x] : 0.f;
      float* dg = to.dg + (b * p.T + t) * groups + group;
      if (t < p.T) *dg = (n > 0 ? *dg : 0.f) + after + before - earlier + pi;
      X = pi + rhos;
      __syncthreads();
    }
  }
}

}  // namespace

cudaError_t power_gate(const PowerSweep& p, const PowerGate& to, cudaStream_t stream) {
  if (p.segments > 1) {
    const dim3 grid(unsigned(p.B * p.H), unsigned(p.segments - 1));
    if (p.K <= 16) {
      between_kernel<16, 64><<<grid, kPowerThreads, 0, stream>>>(p, to.between);
    } else {
      between_kernel<32, 32><<<grid, kPowerThreads, 0, stream>>>(p, to.between);
    }
  }
  const dim3 grid(unsigned(p.B * p.H / p.state_group), unsigned(p.segments));
  gate_kernel<<<grid, kC, 0, stream>>>(p, to);
  return cudaGetLastError();
}

}  // namespace horner::cuda
