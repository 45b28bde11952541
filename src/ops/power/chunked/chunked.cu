// `power`, level 2: the kernels that sweep (chunked.cuh), the kernel that joins segments of time, and their launch.
#include "ops/power/chunked/chunked.cuh"

#include "ops/power/delta.cuh"

namespace horner::cuda {
namespace {

extern __shared__ __align__(128) unsigned char dynamic[];

template <int kK, int kV, Role kRole, bool kStateOnly>
__global__ void __launch_bounds__(kSweepThreads<kK, kStateOnly>, 1)
    sweep_kernel(const __grid_constant__ PowerSweep p) {
#if __CUDA_ARCH__ >= 900
  sweep<kK, kV, kRole, kStateOnly>(p, dynamic);
#endif
}

// Sums what each segment adds to the state: slot n then holds the state after segment n (in reverse: before it). A thread
// owns one element of the state of one block of columns.
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

// Delta; 0 if den is below eps, because the divisor is then a constant.
__global__ void __launch_bounds__(kDeltaThreads)
    delta_kernel(const __grid_constant__ PowerSweep p) {
  const DeltaToken at(p.H);
  const float sum = delta_of(at, p.o, p.o_rest, p.dO, p.V, at.t < p.T);
  const int64_t bht = (at.b * p.H + at.h) * p.T + at.t;
  if (at.first && at.t < p.T) p.delta[bht] = p.clamps && p.den[bht] < p.eps ? 0.f : sum;
}

// A thread owns 8 numbers of a row.
__global__ void __launch_bounds__(kPowerThreads) sum_kernel(const __grid_constant__ PowerSum p) {
  const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= p.rows) return;
  float sum[8] = {};
  for (int block = 0; block < p.blocks; ++block) {
    for (int n = 0; n < p.group; ++n) {
      const int64_t at = ((block * p.rows + row) * p.group + n) * p.width + 8 * threadIdx.x;
      const float4* from = reinterpret_cast<const float4*>(p.from + at);
      const float4 a = from[0], b = from[1];
      const float eight[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int e = 0; e < 8; ++e) sum[e] += eight[e];
    }
  }
  reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(p.to) + row * p.width)[threadIdx.x] = {
      pack(sum[0], sum[1]), pack(sum[2], sum[3]), pack(sum[4], sum[5]), pack(sum[6], sum[7])};
}

template <int kK, int kV>
__global__ void __launch_bounds__(kPowerThreads, 1)
    import_kernel(const __grid_constant__ PowerSweep p, const float* from, float* to, bool dual) {
  import_state<kK, kV>(p, from, to, dual);
}
template <int kK, int kV>
__global__ void __launch_bounds__(kPowerThreads, 1)
    export_last_kernel(const __grid_constant__ PowerSweep p) {
  export_last<kK, kV>(p);
}
template <int kK, int kV>
__global__ void __launch_bounds__(kPowerThreads, 1)
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
  kernel<<<unsigned(blocks), kSweepThreads<kK, kStateOnly>, kBytes, stream>>>(p);
  return cudaGetLastError();
}

// Computes the states between segments, then sweeps over all segments at once.
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
  if (p.normalise) delta_kernel<<<DeltaToken::blocks(p.B, p.T, p.H), kDeltaThreads, 0, stream>>>(p);
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

cudaError_t power_sum(const PowerSum& p, cudaStream_t stream) {
  const dim3 threads(unsigned(p.width / 8), unsigned(kPowerThreads / (p.width / 8)));
  sum_kernel<<<unsigned((p.rows + threads.y - 1) / threads.y), threads, 0, stream>>>(p);
  return cudaGetLastError();
}

cudaError_t power_forward(const PowerSweep& p, cudaStream_t stream) {
  return p.K <= 16 ? launch_forward<16, 64>(p, stream) : launch_forward<32, 32>(p, stream);
}

cudaError_t power_backward(const PowerSweep& p, cudaStream_t stream) {
  return p.K <= 16 ? launch_backward<16, 64>(p, stream) : launch_backward<32, 32>(p, stream);
}

}  // namespace horner::cuda
