// `linear`, level 2: when there are too few heads to fill the GPU, a sweep over a long time runs in parts.
//
//   S'_p = state at the end of part p, from zero (part 0: from the first state)         all parts at once
//   S_p  = state that enters part p:  S_1 = S'_0,  S_{p+1} = e^{G_p} S_p + S'_p         G_p: decay of the whole part
#include "ops/linear/chunked/carry.cuh"

namespace horner::cuda {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

// One warpgroup carries 64 rows of the state.
template <int kRows, bool kDecay, bool kReverse>
__device__ void carry_end(const Sweep& p, const Job& job, Memory<kRows, Role::ends>& m, int tile) {
  const Place at;
  float S[1][32] = {}, decayed = 0.f;
  const bool own = !kReverse || job.h % p.first.group == 0;  // a gradient counts once per state
  if (job.part == 0 && p.first.data && own) {
    const float factor = kReverse ? 1.f / float(p.scale) : 1.f;
    const auto load = [&](float& x, const float* from) { x = *from * factor; };
    for_state(S, p.first, p, job, at, load, tile);
  }
  for (int i = 0; i < job.chunks; ++i) {
    m.wait_full(i);
    update_state<kDecay>(S, m, i, at, tile);
    if (kDecay) decayed += m.G[i % m.kStages][63];
    m.template release<kDecay>(i, job.chunks);
  }
  for_state(
      S, p.entering, p, job, at, [](float x, float* to) { *to = x; }, tile
  );
  if (kDecay && job.block == 0 && threadIdx.x == 0)
    p.decays[int64_t(job.part) * p.B * p.H + job.bh] = decayed;
}

#endif

template <int kRows>
constexpr int kEndThreads = (kRows / 64 + 1) * kGroup;

// A block owns 64 columns of the end state of one (b, h) and part. One warpgroup for each 64 rows, and one that loads.
template <int kRows, bool kDecay, bool kReverse>
__global__ void __launch_bounds__(kEndThreads<kRows>, 1)
    ends_kernel(const __grid_constant__ Sweep p, const __grid_constant__ Maps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  Memory<kRows, Role::ends>& m = *reinterpret_cast<Memory<kRows, Role::ends>*>(aligned_memory());
  const Job job = job_at(p, blockIdx.x);
  if (threadIdx.x == 0) {
    m.init(kDecay);
    fence_async_proxy();
  }
  __syncthreads();
  const int tile = int(threadIdx.x) / kGroup;
  if (tile < kRows / 64) {
    carry_end<kRows, kDecay, kReverse>(p, job, m, tile);
  } else {
    feed<kRows, kDecay, kReverse, Role::ends, Norm::follows>(p, maps, job, m);
  }
#endif
}

constexpr int kJoined = 128, kAhead = 16;  // threads; parts that are loaded at once

// A thread owns one element of the state and walks over the parts. Blocks (n, ..) own elements with the same decay.
__global__ void __launch_bounds__(kJoined)
    join_kernel(float* ends, const float* decays, int parts, int64_t size, int64_t each) {
  const int64_t in_block = int64_t(blockIdx.y) * kJoined + threadIdx.x;
  if (in_block >= each) return;
  ends += blockIdx.x * each + in_block;
  float S = ends[0];
  for (int first = 1; first < parts; first += kAhead) {
    float end[kAhead] = {}, kept[kAhead] = {};
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      if (first + n + 1 >= parts) continue;
      end[n] = ends[(first + n) * size];
      kept[n] = decays ? exp2f(decays[int64_t(first + n) * gridDim.x + blockIdx.x]) : 1.f;
    }
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      if (first + n < parts) ends[(first + n) * size] = S;
      S = kept[n] * S + end[n];
    }
  }
}

template <int kRows, bool kDecay>
cudaError_t launch_ends(const Sweep& p, cudaStream_t stream) {
  Maps maps;
  cudaError_t error = encode(maps, p);
  if (error != cudaSuccess) return error;
  const auto kernel =
      p.reverse ? ends_kernel<kRows, kDecay, true> : ends_kernel<kRows, kDecay, false>;
  const int64_t blocks = (p.parts - 1) * p.B * p.H * ((p.N + 63) / 64);
  const size_t bytes = sizeof(Memory<kRows, Role::ends>) + kAlignment;
  error = launch(kernel, blocks, kEndThreads<kRows>, bytes, stream, p, maps);
  if (error != cudaSuccess) return error;
  const int64_t state = int64_t(p.R) * p.N;
  float* ends = static_cast<float*>(p.entering.data);
  return join_parts(ends, p.decays, p.parts, p.B * p.H * state, state, stream);
}

}  // namespace

cudaError_t join_parts(
    float* ends, const float* decays, int parts, int64_t size, int64_t each, cudaStream_t stream
) {
  const dim3 blocks(unsigned(size / each), unsigned((each + kJoined - 1) / kJoined));
  join_kernel<<<blocks, kJoined, 0, stream>>>(ends, decays, parts, size, each);
  return cudaGetLastError();
}

cudaError_t chunked_entering(const Sweep& p, cudaStream_t stream) {
  if (p.decay == Decay::none) {
    return p.R <= 64 ? launch_ends<64, false>(p, stream) : launch_ends<128, false>(p, stream);
  }
  return p.R <= 64 ? launch_ends<64, true>(p, stream) : launch_ends<128, true>(p, stream);
}

}  // namespace horner::cuda
