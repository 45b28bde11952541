// `linear`, level 2: the work of one block, a sweep over chunks of 64 tokens on Hopper's tensor cores.
#pragma once

#include "ops/linear/chunked/outputs.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 4 * kGroup;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

// A block owns 64 columns of the state of one (b, h) and walks over the chunks of one part of the time. Warpgroups 0 and 1
// compute y from copies of the state, warpgroup 2 carries the state, warpgroup 3 loads. Shared memory: kStages stages of q,
// k, v, and bf16 copies of the state. Barriers between the groups are separate, so a group waits only for what it reads.
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
  constexpr bool kGains = kDecay && kNorm != Norm::none;  // then `feed` needs more registers
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
