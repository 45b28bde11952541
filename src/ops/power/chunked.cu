// `power`, level 2: the kernels that sweep (chunked.cuh), what joins segments of time, and their launch.
#include "ops/power/chunked.cuh"

namespace horner::cuda {
namespace {

extern __shared__ __align__(128) unsigned char dynamic[];

template <int kK, int kV, Role kRole, bool kStateOnly>
__global__ void __launch_bounds__(kPowerThreads, 1)
    sweep_kernel(const __grid_constant__ PowerSweep p) {
#if __CUDA_ARCH__ >= 900
  sweep<kK, kV, kRole, kStateOnly>(p, dynamic);
#endif
}

// What each segment added to the state, summed: slot n then holds the state after segment n (in reverse: before
// it). A thread has one element of the state of one block of columns.
template <bool kReverse>
__global__ void join_kernel(const __grid_constant__ PowerSweep p, int size) {
  const int element = blockIdx.x * blockDim.x + threadIdx.x, job = blockIdx.y;
  if (element >= size) return;
  float* states = (kReverse ? p.Z : p.S) + int64_t(job) * p.segments * size + element;
  const float* passed = p.passed + job / p.blocks * p.segments;
  float x = states[(kReverse ? p.segments - 1 : 0) * int64_t(size)];
  for (int i = 1; i < p.segments - 1; ++i) {
    const int n = kReverse ? p.segments - 1 - i : i;
    x = exp2_fast(passed[n]) * x + states[n * int64_t(size)];
    states[n * int64_t(size)] = x;
  }
}

// Delta_t = do_t.o_t: 8 lanes a token, 8 columns a lane at a time. 0 where den is held at eps, and so a constant.
__global__ void __launch_bounds__(kPowerThreads)
    delta_kernel(const __grid_constant__ PowerSweep p) {
  const int64_t index = int64_t(blockIdx.x) * (kPowerThreads / 8) + threadIdx.x / 8;
  const int64_t bth = min(index, p.B * p.T * p.H - 1), h = bth % p.H, t = bth / p.H % p.T;
  Job job{};
  job.b = int(bth / p.H / p.T);
  job.h = int(h);
  const __nv_bfloat16 *o = row_of<__nv_bfloat16>(p.o, job, t),
                      *rest = row_of<__nv_bfloat16>(p.o_rest, job, t),
                      *dO = row_of<__nv_bfloat16>(p.dO, job, t);
  float sum = 0.f;
  for (int c = 8 * (threadIdx.x % 8); c < p.V; c += 64) {
    const uint4 a = *reinterpret_cast<const uint4*>(o + c),
                r = *reinterpret_cast<const uint4*>(rest + c),
                b = *reinterpret_cast<const uint4*>(dO + c);
    const uint32_t x[4] = {a.x, a.y, a.z, a.w}, z[4] = {r.x, r.y, r.z, r.w},
                   y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int n = 0; n < 4; ++n)
      sum += (low_half(x[n]) + low_half(z[n])) * low_half(y[n]) +
             (high_half(x[n]) + high_half(z[n])) * high_half(y[n]);
  }
#pragma unroll
  for (int d = 1; d < 8; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
  const int64_t at = (job.b * p.H + h) * p.T + t;
  if (threadIdx.x % 8 == 0 && index == bth) p.delta[at] = p.clamps && p.den[at] < p.eps ? 0.f : sum;
}

template <int kK, int kV>
__global__ void __launch_bounds__(kPowerThreads)
    import_kernel(const __grid_constant__ PowerSweep p, const float* from, float* to, bool dual) {
  import_state<kK, kV>(p, from, to, dual);
}
template <int kK, int kV>
__global__ void __launch_bounds__(kPowerThreads)
    export_last_kernel(const __grid_constant__ PowerSweep p) {
  export_last<kK, kV>(p);
}
template <int kK, int kV>
__global__ void __launch_bounds__(kPowerThreads)
    export_first_grad_kernel(const __grid_constant__ PowerSweep p) {
  export_first_grad<kK, kV>(p);
}

template <int kK, int kV, Role kRole, bool kStateOnly>
cudaError_t launch_sweep(const PowerSweep& p, cudaStream_t stream) {
  constexpr int kBytes = int(sizeof(Memory<kK, kV, kRole, kStateOnly>));
  const auto kernel = sweep_kernel<kK, kV, kRole, kStateOnly>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int64_t blocks = p.B * p.H * p.blocks * (p.segments - (kStateOnly ? 1 : 0));
  kernel<<<unsigned(blocks), kPowerThreads, kBytes, stream>>>(p);
  return cudaGetLastError();
}

// The states between segments, then the sweep over all of them at once.
template <int kK, int kV, Role kRole>
cudaError_t launch_segments(const PowerSweep& p, cudaStream_t stream) {
  constexpr bool kReverse = kRole == Role::dkv;
  if (p.segments > 1) {
    constexpr Role kState = kReverse ? Role::dkv : Role::forward;
    const cudaError_t error = launch_sweep<kK, kV, kState, true>(p, stream);
    if (error != cudaSuccess) return error;
    constexpr int kSize = Features<kK>::kSlots * (kV / 16 + 1) * 4 * kPowerThreads;
    const dim3 grid(kSize / 256, unsigned(p.B * p.H * p.blocks));
    join_kernel<kReverse><<<grid, 256, 0, stream>>>(p, kSize);
  }
  return launch_sweep<kK, kV, kRole, false>(p, stream);
}

template <int kK, int kV>
cudaError_t launch_forward(const PowerSweep& p, cudaStream_t stream) {
  const dim3 heads(unsigned(p.B * p.H), unsigned(p.blocks));
  if (p.first)
    import_kernel<kK, kV><<<heads, kPowerThreads, 0, stream>>>(p, p.first, p.S_first, false);
  const cudaError_t error = launch_segments<kK, kV, Role::forward>(p, stream);
  if (error != cudaSuccess) return error;
  if (p.last) export_last_kernel<kK, kV><<<heads, kPowerThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

template <int kK, int kV>
cudaError_t launch_backward(const PowerSweep& p, cudaStream_t stream) {
  const dim3 heads(unsigned(p.B * p.H), unsigned(p.blocks));
  if (p.first)
    import_kernel<kK, kV><<<heads, kPowerThreads, 0, stream>>>(p, p.first, p.S_first, false);
  if (p.last_grad)
    import_kernel<kK, kV><<<heads, kPowerThreads, 0, stream>>>(p, p.last_grad, p.dS, true);
  const unsigned groups = unsigned((p.B * p.T * p.H + kPowerThreads / 8 - 1) / (kPowerThreads / 8));
  if (p.normalise) delta_kernel<<<groups, kPowerThreads, 0, stream>>>(p);
  cudaError_t error = launch_segments<kK, kV, Role::dq>(p, stream);
  if (error == cudaSuccess) error = launch_segments<kK, kV, Role::dkv>(p, stream);
  if (error != cudaSuccess) return error;
  if (p.last) export_last_kernel<kK, kV><<<heads, kPowerThreads, 0, stream>>>(p);
  if (p.first_grad) export_first_grad_kernel<kK, kV><<<heads, kPowerThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

int power_columns(int K) { return K <= 16 ? 64 : 32; }

int power_registers(int K) {
  return K <= 16 ? Features<16>::kSlots * 5 * 4 : Features<32>::kSlots * 3 * 4;
}

cudaError_t power_forward(const PowerSweep& p, cudaStream_t stream) {
  return p.K <= 16 ? launch_forward<16, 64>(p, stream) : launch_forward<32, 32>(p, stream);
}

cudaError_t power_backward(const PowerSweep& p, cudaStream_t stream) {
  return p.K <= 16 ? launch_backward<16, 64>(p, stream) : launch_backward<32, 32>(p, stream);
}

}  // namespace horner::cuda
