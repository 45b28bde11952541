// `linear`, level 2: the kernels that sweep (chunked.cuh), and their launch.
#include "ops/linear/chunked/chunked.cuh"

#include <algorithm>

namespace horner::cuda {
namespace {

template <int kRows, bool kDecay, bool kSum>
__global__ void __launch_bounds__(kThreads, 1)
    forward_kernel(const __grid_constant__ Sweep p, const __grid_constant__ Maps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr Norm norm = kSum ? Norm::divides : Norm::none;
  sweep<kRows, kDecay, false, Role::plain, norm>(p, maps, {}, aligned_memory(), blockIdx.x);
#endif
}

// A block does one sweep for 64 columns (chunked.cuh). Sweeps of one head and direction have neighbouring blocks, so they
// share the cache. The longest sweeps, dq, come first, and the others fill the gaps. R is V for dq and dk, K for dv.
template <int kRowsV, int kRowsK, bool kDecay, bool kSum>
__global__ void __launch_bounds__(kThreads, 1) backward_kernel(
    const __grid_constant__ Gradient p,
    const __grid_constant__ Maps dq_maps,
    const __grid_constant__ Maps dk_maps,
    const __grid_constant__ Maps dv_maps
) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr Role dq = kDecay ? Role::dq : Role::plain, dk = kDecay ? Role::dk : Role::plain;
  constexpr Norm norm = kSum ? Norm::shifts : Norm::none;
  const unsigned keys = (p.dq.N + 63) / 64, values = (p.dv.N + 63) / 64;
  const unsigned forward = unsigned(p.dq.parts * p.dq.B * p.dq.H) * keys;
  if (blockIdx.x < forward) {
    sweep<kRowsV, kDecay, false, dq, norm>(p.dq, dq_maps, p.rho, aligned_memory(), blockIdx.x);
    return;
  }
  const unsigned job = (blockIdx.x - forward) % (keys + values),
                 head = (blockIdx.x - forward) / (keys + values);
  if (job < keys) {
    sweep<kRowsV, kDecay, true, dk, norm>(
        p.dk, dk_maps, p.kappa, aligned_memory(), head * keys + job
    );
  } else {
    sweep<kRowsK, kDecay, true, Role::plain, kSum ? Norm::follows : Norm::none>(
        p.dv, dv_maps, {}, aligned_memory(), head * values + job - keys
    );
  }
#endif
}

template <int kRows, bool kDecay>
cudaError_t launch_forward(const Sweep& p, cudaStream_t stream) {
  Maps maps;
  const cudaError_t error = encode(maps, p);
  if (error != cudaSuccess) return error;
  const int64_t blocks = p.parts * p.B * p.H * ((p.N + 63) / 64);
  const size_t bytes = sizeof(Memory<kRows, Role::plain>) + kAlignment;
  const auto kernel =
      p.norm.sums ? forward_kernel<kRows, kDecay, true> : forward_kernel<kRows, kDecay, false>;
  return launch(kernel, blocks, kThreads, bytes, stream, p, maps);
}

template <int kRowsV, int kRowsK>
cudaError_t launch_backward(const Gradient& p, cudaStream_t stream) {
  Maps maps[3];
  const Sweep* sweeps[3] = {&p.dq, &p.dk, &p.dv};
  for (int i = 0; i < 3; ++i) {
    const cudaError_t error = encode(maps[i], *sweeps[i]);
    if (error != cudaSuccess) return error;
  }
  const size_t bytes = kAlignment + std::max(
                                        {sizeof(Memory<kRowsV, Role::dq>),
                                         sizeof(Memory<kRowsV, Role::plain>),
                                         sizeof(Memory<kRowsK, Role::plain>)}
                                    );
  const int64_t blocks =
      p.dq.parts * p.dq.B * p.dq.H * (2 * ((p.dq.N + 63) / 64) + (p.dv.N + 63) / 64);
  const bool sum = p.dq.norm.sums != nullptr;
  const auto kernel = p.dq.decay == Decay::none
                          ? sum ? backward_kernel<kRowsV, kRowsK, false, true>
                                : backward_kernel<kRowsV, kRowsK, false, false>
                      : sum ? backward_kernel<kRowsV, kRowsK, true, true>
                            : backward_kernel<kRowsV, kRowsK, true, false>;
  return launch(kernel, blocks, kThreads, bytes, stream, p, maps[0], maps[1], maps[2]);
}

}  // namespace

cudaError_t chunked_forward(const Sweep& p, cudaStream_t stream) {
  if (p.decay == Decay::none) {
    return p.R <= 64 ? launch_forward<64, false>(p, stream) : launch_forward<128, false>(p, stream);
  }
  return p.R <= 64 ? launch_forward<64, true>(p, stream) : launch_forward<128, true>(p, stream);
}

cudaError_t chunked_backward(const Gradient& p, cudaStream_t stream) {
  if (p.dq.R <= 64) {
    return p.dv.R <= 64 ? launch_backward<64, 64>(p, stream) : launch_backward<64, 128>(p, stream);
  }
  return p.dv.R <= 64 ? launch_backward<128, 64>(p, stream) : launch_backward<128, 128>(p, stream);
}

}  // namespace horner::cuda
