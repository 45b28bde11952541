// `power` with wide keys: the sums of each chunk, and the states between chunks (wide.cuh). Tensor cores.
#include "cuda/launch.cuh"
#include "cuda/mma.cuh"
#include "ops/power/wide/tiles.cuh"

namespace horner::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kTokens = 128, kOwn = 3;  // of 16 rows, a warp's

template <int kK>
struct UpdateMemory {
  WideTile<kTokens, kK> x[2];
  WideTile<kTokens, kWideColumns> u[2];
  // Row j: x_j of all tokens. Then 16 rows of ones and 31 of zeros, so that every feature is a product of two rows.
  WideTile<kK + 47, kTokens> turned;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Addresses of the two rows whose product is a feature. A unit is 16 features; a warp owns kOwn units.
template <int kK>
__device__ __forceinline__ void find_factors(
    uint32_t (&factors)[kOwn][2], const UpdateMemory<kK>& m, int first_unit, int lane
) {
#pragma unroll
  for (int n = 0; n < kOwn; ++n) {
    const WideRows own(first_unit + n, kK);
    int first = own.first + lane % 16, second = kK + lane % 16;
    if (own.kind == WideRows::pairs) second = (first + own.turn) % kK;
    if (own.kind == WideRows::constant) first = kK + 15 + lane % 16;
    if (own.kind == WideRows::none) first = kK + 16 + lane % 16;
    factors[n][0] = m.turned.at(first, lane / 16 * 8);
    factors[n][1] = m.turned.at(second, lane / 16 * 8);
  }
}

// m.turned = x^T of a stage.
template <int kK>
__device__ __forceinline__ void turn(UpdateMemory<kK>& m, int stage, int lane, int warp) {
#pragma unroll 2
  for (int tile = warp; tile < kTokens / 16 * (kK / 16); tile += kWarps) {
    const int token = tile % (kTokens / 16) * 16, number = tile / (kTokens / 16) * 16;
    uint32_t a[4];
    load_matrices_transposed(a, m.x[stage].at(token + lane % 16, number + lane / 16 * 8));
#pragma unroll
    for (int e = 0; e < 4; ++e)
      m.turned.pair(number + lane / 4 + e / 2 * 8, token + 2 * (lane % 4) + e % 2 * 8) = a[e];
  }
}

// d += sum_t m(x_t)^T u_t over the tokens of a stage.
template <int kK>
__device__ __forceinline__ void add_tokens(
    float (&d)[kOwn][kWideColumns / 8][4],
    const UpdateMemory<kK>& m,
    int stage,
    const uint32_t (&factors)[kOwn][2],
    int lane
) {
  uint32_t v[2][kWideColumns / 8 + 1][2], x[2][kOwn][2][4];  // these 16 tokens, the next 16
  const auto load = [&](int step) {
    load_columns(v[step % 2], m.u[stage], 16 * step, lane);
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      load_matrices(x[step % 2][n][0], factors[n][0] + 32 * step);
      load_matrices(x[step % 2][n][1], factors[n][1] + 32 * step);
    }
  };
  load(0);
#pragma unroll
  for (int step = 0; step < kTokens / 16; ++step) {
    if (step + 1 < kTokens / 16) load(step + 1);
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      uint32_t a[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) a[e] = multiply_pairs(x[step % 2][n][0][e], x[step % 2][n][1][e]);
#pragma unroll
      for (int c = 0; c < kWideColumns / 8; ++c)
        multiply(d[n][c], a, v[step % 2][c][0], v[step % 2][c][1]);
    }
  }
}

#endif

// A block owns kOwn * kWarps * 16 rows of the sums of one chunk and one head, and one block of columns.
template <int kK>
__global__ void __launch_bounds__(kThreads, 1) update_kernel(const __grid_constant__ PowerWide p) {
#if __CUDA_ARCH__ >= 900
  HORNER_DYNAMIC_MEMORY(memory);
  auto& m = *reinterpret_cast<UpdateMemory<kK>*>(memory);
  const int t = int(threadIdx.x), warp = t / 32, lane = t % 32;
  const int rows = wide_rows(kK), parts = (rows / 16 + kOwn * kWarps - 1) / (kOwn * kWarps);
  int64_t job = blockIdx.x;
  const int part = int(job % parts), block = int(job / parts % p.blocks);
  job /= int64_t(parts) * p.blocks;
  const int64_t chunk = job % p.chunks, h = job / p.chunks % p.H, b = job / p.chunks / p.H;
  const int64_t start = chunk * p.length, end = min(p.T, start + p.length);
  const auto fetch = [&](int64_t from, int stage) {
    m.x[stage].template fetch<kThreads>(p.x, b, h, from, end, 0);
    m.u[stage].template fetch<kThreads>(p.u, b, h, from, end, block * kWideColumns);
    copy_commit();
  };
  for (int e = t; e < 47 * kTokens / 2; e += kThreads) {
    const int row = e / (kTokens / 2);
    m.turned.pair(kK + row, e % (kTokens / 2) * 2) = row < 16 ? 0x3f803f80u : 0u;
  }
  uint32_t factors[kOwn][2];
  find_factors(factors, m, (part * kWarps + warp) * kOwn, lane);
  float d[kOwn][kWideColumns / 8][4] = {};
  fetch(start, 0);
  int stage = 0;
#pragma unroll 1
  for (int64_t from = start; from < end; from += kTokens, stage ^= 1) {
    fetch(from + kTokens, stage ^ 1);
    copy_wait<1>();
    __syncthreads();
    turn(m, stage, lane, warp);
    __syncthreads();
    add_tokens(d, m, stage, factors, lane);
    __syncthreads();
  }
  const int64_t columns = p.blocks * kWideColumns;
  float* const to = p.sums + ((b * p.chunks + chunk) * p.H + h) * rows * columns;
#pragma unroll
  for (int n = 0; n < kOwn; ++n) {
    const int row = ((part * kWarps + warp) * kOwn + n) * 16 + lane / 4;
    if (row >= rows) break;
#pragma unroll
    for (int c = 0; c < kWideColumns / 8; ++c) {
      float* at = to + row * columns + block * kWideColumns + 8 * c + 2 * (lane % 4);
      *reinterpret_cast<float2*>(at) = {d[n][c][0], d[n][c][1]};
      *reinterpret_cast<float2*>(at + 8 * columns) = {d[n][c][2], d[n][c][3]};
    }
  }
#endif
}

__global__ void prefix_kernel(const __grid_constant__ PowerPrefix p) {
  const int64_t size = p.rows * p.columns, e = 2 * (int64_t(blockIdx.x) * blockDim.x + threadIdx.x);
  if (e >= p.B * p.heads * size) return;
  const int64_t head = e / size, at = e % size, b = head / p.heads, g = head % p.heads;
  const float W = WideRows(int(at / p.columns / 16), p.K).weight(p.c0, p.c1, p.c2);
  const float before = p.weighs_sums ? W : 1.f, after = p.weighs_sums ? 1.f : W;
  float2 s = p.first ? *reinterpret_cast<const float2*>(p.first + e) : float2{0.f, 0.f};
  for (int64_t i = 0; i < p.chunks; ++i) {
    const int64_t chunk = b * p.chunks + (p.back ? p.chunks - 1 - i : i);
    static_cast<uint32_t*>(p.S)[((chunk * p.heads + g) * size + at) / 2] =
        pack(after * s.x, after * s.y);
    for (int n = 0; n < p.group; ++n) {
      const float2 sum = *reinterpret_cast<const float2*>(
          p.sums + ((chunk * p.heads + g) * p.group + n) * size + at
      );
      s.x += before * sum.x;
      s.y += before * sum.y;
    }
  }
  if (p.last) *reinterpret_cast<float2*>(p.last + e) = s;
}

template <int kK>
cudaError_t update(const PowerWide& p, cudaStream_t stream) {
  const int64_t parts = (wide_rows(kK) / 16 + kOwn * kWarps - 1) / (kOwn * kWarps);
  return launch(
      update_kernel<kK>,
      parts * p.blocks * p.chunks * p.H * p.B,
      kThreads,
      sizeof(UpdateMemory<kK>),
      stream,
      p
  );
}

}  // namespace

cudaError_t power_wide_update(const PowerWide& p, cudaStream_t stream) {
  return p.K == 64 ? update<64>(p, stream) : update<128>(p, stream);
}

cudaError_t power_wide_prefix(const PowerPrefix& p, cudaStream_t stream) {
  const int64_t pairs = p.B * p.heads * p.rows * p.columns / 2;
  prefix_kernel<<<unsigned((pairs + 255) / 256), 256, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace horner::cuda
