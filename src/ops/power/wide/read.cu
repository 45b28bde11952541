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

// A block owns kTokens tokens of a head and one block of columns; a warp owns 32 tokens. It walks over all rows of the state.
template <int kK>
__global__ void __launch_bounds__(kThreads, 1) read_kernel(const __grid_constant__ PowerWide p) {
#if __CUDA_ARCH__ >= 900
  HORNER_DYNAMIC_MEMORY(memory);
  auto& m = *reinterpret_cast<ReadMemory<kK>*>(memory);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, r = lane / 4, i = lane % 4;
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
  uint32_t x[2][kK / 16][4];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int j = 0; j < kK / 16; ++j)
      load_matrices(x[n][j], m.x.even.at(32 * warp + 16 * n + lane % 16, 16 * j + lane / 16 * 8));
  }
  float d[2][kWideColumns / 8][4] = {};
  int step = 0;
  const auto next = [&]() -> const WideTile<kRows, kWideColumns>& {
    copy_wait<kStages - 2>();
    __syncthreads();  // these rows have arrived, and all threads have read the rows before them
    fetch(step + kStages - 1);
    return m.S[step++ % kStages];
  };
  uint32_t v[2][kWideColumns / 8 + 1][2], a[2][2][4];  // of these 16 rows, and of the next 16
  const auto add = [&](int step) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int c = 0; c < kWideColumns / 8; ++c)
        multiply(d[n][c], a[step % 2][n], v[step % 2][c][0], v[step % 2][c][1]);
    }
  };
#pragma unroll 1
  for (int turn = 0; turn <= kK / 2 + 1; ++turn) {  // the last tile: x_j
    const auto turned = m.x.turned(turn);
#pragma unroll
    for (int half = 0; half < kK / kRows; ++half) {
      const WideTile<kRows, kWideColumns>& S = next();
      const auto load = [&](int step) {
        const int j = half * kRows + 16 * step;
        load_columns(v[step % 2], S, 16 * step, lane);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const uint32_t own = x[n][j / 16][e];
            const int token = 32 * warp + 16 * n + r + e % 2 * 8;
            const uint32_t other = turned.pair(token, j + 2 * i + e / 2 * 8);
            a[step % 2][n][e] = turn <= kK / 2 ? multiply_pairs(own, other) : own;
          }
        }
      };
      load(0);
#pragma unroll
      for (int step = 0; step < kRows / 16; ++step) {
        if (step + 1 < kRows / 16) load(step + 1);
        add(step);
      }
    }
  }
  load_columns(v[0], next(), 0, lane);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    a[0][n][0] = a[0][n][1] = i == 0 ? 0x00003f80u : 0u;
    a[0][n][2] = a[0][n][3] = 0u;
  }
  add(0);
  const int64_t columns = p.blocks * kWideColumns;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int token = job.from + 32 * warp + 16 * n + r + 8 * e;
      if (token >= job.end) continue;
      float* to =
          p.y + ((int64_t(job.b) * p.T + token) * p.H + job.h) * columns + block * kWideColumns;
#pragma unroll
      for (int c = 0; c < kWideColumns / 8; ++c)
        *reinterpret_cast<float2*>(to + 8 * c + 2 * i) = {d[n][c][2 * e], d[n][c][2 * e + 1]};
    }
  }
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
