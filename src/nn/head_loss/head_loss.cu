// Log-sum-exp, loss and gradient of each row of logits.
//
// L threads own a row: one warp of eight in a block, or a whole block. A thread holds U octets of the row in registers, so
// a row of up to 8 L U numbers is read once and written once. Longer and capped rows are read twice (U = 0). Shared memory
// holds only the sums of warps. Numbers are kept as powers of 2: x = l log2(e), so e^l = 2^x.
#include "nn/head_loss/head_loss.cuh"

#include "cuda/octet.cuh"
#include "cuda/sm90.cuh"

namespace horner::cuda {
namespace {

constexpr float kLog2e = 1.44269504f, kLn2 = 0.69314718f, kLeast = -1e30f;

constexpr __host__ __device__ int threads_of(int L) { return L == 32 ? 256 : L; }

// s 2^m, the sum of 2^x
struct LogSum {
  float m = kLeast, s = 0.f;
  __device__ void add(const float (&x)[8]) {
    float most = m;
#pragma unroll
    for (int c = 0; c < 8; ++c) most = fmaxf(most, x[c]);
    s *= exp2_fast(m - most);
    m = most;
#pragma unroll
    for (int c = 0; c < 8; ++c) s += exp2_fast(x[c] - m);
  }
  __device__ void add(float other_m, float other_s) {
    const float most = fmaxf(m, other_m);
    s = s * exp2_fast(m - most) + other_s * exp2_fast(other_m - most);
    m = most;
  }
  template <int lanes>
  __device__ void add_lanes() {
#pragma unroll
    for (int i = lanes / 2; i > 0; i /= 2)
      add(__shfl_xor_sync(~0u, m, i), __shfl_xor_sync(~0u, s, i));
  }
};

// The sum over the L threads of a row, for each of them.
template <int L>
__device__ LogSum over_row(LogSum sum) {
  sum.add_lanes<32>();
  __syncwarp();
  if constexpr (L > 32) {
    constexpr int warps = L / 32;
    __shared__ float2 of_warp[warps];
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = make_float2(sum.m, sum.s);
    __syncthreads();
    const float2 one = of_warp[threadIdx.x % warps];
    sum.m = one.x, sum.s = one.y;
    sum.add_lanes<warps>();
  }
  return sum;
}

template <class T, bool capped>
struct Row {
  const HeadLoss& p;
  T* l;
  int64_t target;

  // x of eight logits; kLeast beyond V. t: tanh(l / cap).
  __device__ void values(const Octet<T>& octet, int column, float (&x)[8], float (&t)[8]) const {
    octet.unpack(x);
    if constexpr (capped) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        t[c] = tanhf(x[c] / p.cap);
        x[c] = p.cap * t[c];
      }
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) x[c] *= kLog2e;
    if (column + 8 <= p.V) return;
#pragma unroll
    for (int c = 0; c < 8; ++c) x[c] = column + c < p.V ? x[c] : kLeast;
  }
  __device__ void add(LogSum& sum, const Octet<T>& octet, int column) const {
    float x[8], t[8];
    values(octet, column, x, t);
    sum.add(x);
  }
  // dl = softmax(l) - [v = target], times 1 - tanh^2 if capped
  __device__ void write_gradient(const Octet<T>& octet, int column, float log_sum) const {
    float x[8], t[8];
    values(octet, column, x, t);
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      x[c] = exp2_fast(x[c] - log_sum) - (column + c == target ? 1.f : 0.f);
      if constexpr (capped) x[c] *= 1.f - t[c] * t[c];
      if (target < 0) x[c] = 0.f;
    }
    Octet<T>::pack(x).write(l + column);
  }
  __device__ float at_target() const {
    if (target < 0) return 0.f;
    const float x = float(l[target]);
    return capped ? p.cap * tanhf(x / p.cap) : x;
  }
};

template <class T, int L, int U, bool capped = false>
__global__ void __launch_bounds__(threads_of(L), sizeof(T) == 2 ? 1024 / threads_of(L) : 1)
    head_loss_kernel(const __grid_constant__ HeadLoss p) {
  const int first = int(threadIdx.x % L) * 8;
  const int64_t i = int64_t(blockIdx.x) * (threads_of(L) / L) + threadIdx.x / L;
  if (i >= p.rows) return;  // with all threads of its row
  const Row<T, capped> row{p, static_cast<T*>(p.l) + i * p.stride, p.targets[i]};
  const float at_target = row.at_target();  // before anyone writes
  LogSum sum;
  Octet<T> held[U > 0 ? U : 1];
  if constexpr (U > 0) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int column = first + u * L * 8;
      if (column < p.V) held[u] = Octet<T>::read(row.l + column);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int column = first + u * L * 8;
      if (column < p.V) row.add(sum, held[u], column);
    }
  } else {
    for (int column = first; column < p.V; column += L * 8)
      row.add(sum, Octet<T>::read(row.l + column), column);
  }
  sum = over_row<L>(sum);
  const float log_sum = sum.m + log2f(sum.s);
  if (first == 0) p.each[i] = row.target < 0 ? 0.f : log_sum * kLn2 - at_target;
  if (!p.gradient) return;
  if constexpr (U > 0) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int column = first + u * L * 8;
      if (column < p.V) row.write_gradient(held[u], column, log_sum);
    }
  } else {
    for (int column = first; column < p.V; column += L * 8)
      row.write_gradient(Octet<T>::read(row.l + column), column, log_sum);
  }
}

template <class T, int L, int U, bool capped = false>
cudaError_t start(const HeadLoss& p, cudaStream_t stream) {
  constexpr int rows = threads_of(L) / L;
  head_loss_kernel<T, L, U, capped>
      <<<unsigned((p.rows + rows - 1) / rows), threads_of(L), 0, stream>>>(p);
  return cudaGetLastError();
}

template <class T>
cudaError_t start(const HeadLoss& p, cudaStream_t stream) {
  if (p.cap > 0.f) return start<T, 512, 0, true>(p, stream);
  if (p.V <= 32 * 8) return start<T, 32, 1>(p, stream);
  if (p.V <= 32 * 32) return start<T, 32, 4>(p, stream);
  if (p.V <= 128 * 32) return start<T, 128, 4>(p, stream);
  if (p.V <= 512 * 32) return start<T, 512, 4>(p, stream);
  if (p.V <= 512 * 64) return start<T, 512, 8>(p, stream);
  return start<T, 512, 0>(p, stream);
}

}  // namespace

cudaError_t head_loss(const HeadLoss& p, cudaStream_t stream) {
  return p.bf16 ? start<__nv_bfloat16>(p, stream) : start<float>(p, stream);
}

}  // namespace horner::cuda
