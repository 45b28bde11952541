// `power` with wide keys: y_t = m(x_t) S, features computed in registers (wide.cuh). Tensor cores.
#include "cuda/launch.cuh"
#include "ops/power/wide/tiles.cuh"

namespace horner::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kStages = 3, kRows = 64, kTokens = 256;

template <int kK>
struct ReadMemory {
  WideNeighbours<kK, kTokens> x;
  WideTile<kRows, kWideColumns> S[kStages];
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// 16 features of a warp's 32 tokens as A operands, and the same 16 rows of the state as B operands.
struct Operands {
  uint32_t a[2][4], v[kWideColumns / 8 + 1][2];

  // Rows j .. j + 15 of the tile: x_j x_{j+d}, or x_j if it is the last tile. turned: x turned by d.
  template <class Rows, class Turned>
  __device__ __forceinline__ void load(
      const Rows& S,
      int row,
      const uint32_t (&x)[2][4],
      const Turned& turned,
      int j,
      bool last,
      int lane,
      int warp
  ) {
    load_columns(v, S, row, lane);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const uint32_t own = x[n][e];
        const int token = 32 * warp + 16 * n + lane / 4 + e % 2 * 8;
        const uint32_t other = turned.pair(token, j + 2 * (lane % 4) + e / 2 * 8);
        a[n][e] = last ? own : multiply_pairs(own, other);
      }
    }
  }
  // The row of ones.
  template <class Rows>
  __device__ __forceinline__ void load_ones(const Rows& S, int lane) {
    load_columns(v, S, 0, lane);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      a[n][0] = a[n][1] = lane % 4 == 0 ? 0x00003f80u : 0u;
      a[n][2] = a[n][3] = 0u;
    }
  }
  __device__ __forceinline__ void add(float (&d)[2][kWideColumns / 8][4]) const {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int c = 0; c < kWideColumns / 8; ++c) multiply(d[n][c], a[n], v[c][0], v[c][1]);
    }
  }
};

__device__ __forceinline__ void store_y(
    const float (&d)[2][kWideColumns / 8][4],
    const PowerWide& p,
    const WideJob& job,
    int block,
    int lane,
    int warp
) {
  const int64_t columns = p.blocks * kWideColumns;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int token = job.from + 32 * warp + 16 * n + lane / 4 + 8 * e;
      if (token >= job.end) continue;
      float* to =
          p.y + ((int64_t(job.b) * p.T + token) * p.H + job.h) * columns + block * kWideColumns;
#pragma unroll
      for (int c = 0; c < kWideColumns / 8; ++c)
        *reinterpret_cast<float2*>(to + 8 * c + 2 * (lane % 4)) = {
            d[n][c][2 * e], d[n][c][2 * e + 1]};
    }
  }
}

#endif

// A block owns kTokens tokens of a head and one block of columns; a warp owns 32 tokens. It walks over all rows of the state.
template <int kK>
__global__ void __launch_bounds__(kThreads, 1) read_kernel(const __grid_constant__ PowerWide p) {
#if __CUDA_ARCH__ >= 900
  HORNER_DYNAMIC_MEMORY(memory);
  auto& m = *reinterpret_cast<ReadMemory<kK>*>(memory);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int block = int(blockIdx.x % p.blocks);
  const WideJob job(p, blockIdx.x / p.blocks, kTokens);
  if (job.from >= job.end) return;
  constexpr int kSteps = wide_rows(kK) / kRows;
  const auto fetch = [&](int step) {
    if (step < kSteps) fetch_state<kThreads>(m.S[step % kStages], p, job.S, step * kRows, block);
    copy_commit();
  };
  m.x.even.template fetch<kThreads>(p.x, job.b, job.h, job.from, job.end, 0);
  for (int step = 0; step < kStages - 1; ++step) fetch(step);
  copy_wait<kStages - 2>();
  __syncthreads();
  m.x.template turn<kThreads>();
  uint32_t x[kK / 16][2][4];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int j = 0; j < kK / 16; ++j)
      load_matrices(x[j][n], m.x.even.at(32 * warp + 16 * n + lane % 16, 16 * j + lane / 16 * 8));
  }
  float d[2][kWideColumns / 8][4] = {};
  int step = 0;
  const auto next = [&]() -> const WideTile<kRows, kWideColumns>& {
    copy_wait<kStages - 2>();
    __syncthreads();  // these rows have arrived, and all threads have read the rows before them
    fetch(step + kStages - 1);
    return m.S[step++ % kStages];
  };
  Operands operands[2];  // of these 16 rows, and of the next 16
#pragma unroll 1
  for (int turn = 0; turn <= kK / 2 + 1; ++turn) {  // the last tile: x_j
    const auto turned = m.x.turned(turn);
#pragma unroll
    for (int half = 0; half < kK / kRows; ++half) {
      const WideTile<kRows, kWideColumns>& S = next();
      const auto load = [&](int step) {
        const int j = half * kRows + 16 * step;
        operands[step % 2].load(S, 16 * step, x[j / 16], turned, j, turn > kK / 2, lane, warp);
      };
      load(0);
#pragma unroll
      for (int step = 0; step < kRows / 16; ++step) {
        if (step + 1 < kRows / 16) load(step + 1);
        operands[step % 2].add(d);
      }
    }
  }
  operands[0].load_ones(next(), lane);
  operands[0].add(d);
  store_y(d, p, job, block, lane, warp);
#endif
}

template <int kK>
cudaError_t read(const PowerWide& p, cudaStream_t stream) {
  return launch(
      read_kernel<kK>,
      WideJob::count(p, kTokens) * p.blocks,
      kThreads,
      sizeof(ReadMemory<kK>),
      stream,
      p
  );
}

}  // namespace

cudaError_t power_wide_read(const PowerWide& p, cudaStream_t stream) {
  return p.K == 64 ? read<64>(p, stream) : read<128>(p, stream);
}

}  // namespace horner::cuda
