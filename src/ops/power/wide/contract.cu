// `power` with wide keys: dx_t = d(m(x_t) S u_t) / dx_t (wide.cuh). Tensor cores.
//
// With P_d = u_t S^T of tile d:  dx_j = sum_d (P_dj x_{j+d} + P_d,j-d x_{j-d}) + P_j, the last of the tile of x_j.
#include "cuda/launch.cuh"
#include "ops/power/wide/tiles.cuh"

namespace horner::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kStages = 2;
constexpr int kDepth = (kWideColumns + 15) / 16;  // products of 16 columns; the last has 8 zeros

template <int kK, int kM>
struct ContractMemory {
  WideNeighbours<kK, kWarps * 16 * kM> x;
  WideTile<kK, 16 * kDepth> S[kStages];
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// u of a warp's tokens and one block of columns, as A operands.
template <int kM>
__device__ __forceinline__ void load_u(
    uint32_t (&u)[kM][kDepth][4], const PowerWide& p, const WideJob& job, int block
) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, r = lane / 4, i = lane % 4;
  const auto* rows = static_cast<const uint16_t*>(p.u.data) + job.b * p.u.b +
                     job.h / p.u.group * p.u.h + block * kWideColumns;
#pragma unroll
  for (int n = 0; n < kM; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {  // rows r, r + 8; past the end any row will do
      const int token = min(job.from + 16 * (kM * warp + n) + r + 8 * e, job.end - 1);
      const auto* row = reinterpret_cast<const uint32_t*>(rows + int64_t(token) * p.u.t) + i;
#pragma unroll
      for (int k = 0; k < kDepth; ++k) {
        u[n][k][e] = row[8 * k];
        u[n][k][2 + e] = 16 * k + 8 < kWideColumns ? row[8 * k + 4] : 0u;
      }
    }
  }
}

// P_d = u S^T for 8 kAtOnce rows of a tile, which begin at `first`.
template <int kK, int kM, int kAtOnce>
__device__ __forceinline__ void multiply_tile(
    float (&P)[kAtOnce][kM][4],
    const uint32_t (&u)[kM][kDepth][4],
    const WideTile<kK, 16 * kDepth>& S,
    int first,
    int lane
) {
#pragma unroll
  for (int k = 0; k < kDepth; k += 2) {
    uint32_t rows[kAtOnce][4];
#pragma unroll
    for (int o = 0; o < kAtOnce; ++o) {
      const int row = (8 * o + first + lane % 8) & (kK - 1);
      const bool in = k + 1 < kDepth || lane < 16;
      load_matrices(rows[o], S.at(row, 16 * k + (in ? lane / 8 * 8 : 0)));
    }
#pragma unroll
    for (int next = 0; next < 2 && k + next < kDepth; ++next) {
#pragma unroll
      for (int o = 0; o < kAtOnce; ++o) {
#pragma unroll
        for (int n = 0; n < kM; ++n)
          multiply(P[o][n], u[n][k + next], rows[o][2 * next], rows[o][2 * next + 1]);
      }
    }
  }
}

// dx_j += P_dj x_{j+d}, or with `back` P_d,j-d x_{j-d}: x turned by d, and the rows of the tile turned too. alone: += P_j.
template <int kK, int kM, int kAtOnce, class X>
__device__ __forceinline__ void add_tile(
    float (&dx)[kM][kK / 8][4],
    const uint32_t (&u)[kM][kDepth][4],
    const WideTile<kK, 16 * kDepth>& S,
    const X& x,
    int first,
    bool alone
) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
#pragma unroll
  for (int c = 0; c < kK / 8; c += kAtOnce) {  // kAtOnce independent sums hide the latency
    const int l = opaque(lane);                // keep no addresses in registers
    float P[kAtOnce][kM][4] = {};
    multiply_tile<kK, kM, kAtOnce>(P, u, S, 8 * c + first, l);
#pragma unroll
    for (int o = 0; o < kAtOnce; ++o) {
#pragma unroll
      for (int n = 0; n < kM; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const uint32_t both =
              x.pair(16 * (kM * warp + n) + l / 4 + 8 * e, 8 * (c + o) + l % 4 * 2);
          dx[n][c + o][2 * e] += P[o][n][2 * e] * (alone ? 1.f : low_half(both));
          dx[n][c + o][2 * e + 1] += P[o][n][2 * e + 1] * (alone ? 1.f : high_half(both));
        }
      }
    }
  }
}

template <int kK, int kM>
__device__ __forceinline__ void store_dx(
    const float (&dx)[kM][kK / 8][4], const PowerWide& p, const WideJob& job
) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, r = lane / 4, i = lane % 4;
#pragma unroll
  for (int n = 0; n < kM; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int token = job.from + 16 * (kM * warp + n) + r + 8 * e;
      if (token >= job.end) continue;
      float* to = p.dx + ((int64_t(job.b) * p.T + token) * p.H + job.h) * kK;
#pragma unroll
      for (int c = 0; c < kK / 8; ++c)
        *reinterpret_cast<float2*>(to + 8 * c + 2 * i) = {dx[n][c][2 * e], dx[n][c][2 * e + 1]};
    }
  }
}

#endif

// A block owns some tokens of a head; a warp owns 16 kM of them.
template <int kK, int kM, int kAtOnce>
__global__ void __launch_bounds__(kThreads, 1)
    contract_kernel(const __grid_constant__ PowerWide p) {
#if __CUDA_ARCH__ >= 900
  HORNER_DYNAMIC_MEMORY(memory);
  auto& m = *reinterpret_cast<ContractMemory<kK, kM>*>(memory);
  const WideJob job(p, blockIdx.x, kWarps * 16 * kM);
  if (job.from >= job.end) return;
  constexpr int kTiles = kK / 2 + 2;
  const int steps = kTiles * p.blocks;
  for (int e = int(threadIdx.x); e < kStages * kK * 4; e += kThreads)  // the zeros
    m.S[e / (kK * 4)].pair(e / 4 % kK, kWideColumns + e % 4 * 2) = 0u;
  const auto fetch = [&](int step) {
    if (step < steps)
      fetch_state<kThreads>(m.S[step % kStages], p, job.S, step % kTiles * kK, step / kTiles);
    copy_commit();
  };
  m.x.even.template fetch<kThreads>(p.x, job.b, job.h, job.from, job.end, 0);
  fetch(0);
  copy_wait<0>();
  __syncthreads();
  m.x.template turn<kThreads>();
  float dx[kM][kK / 8][4] = {};
  uint32_t u[kM][kDepth][4];
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const int turn = step % kTiles, block = step / kTiles;
    if (turn == 0) load_u<kM>(u, p, job, block);
    copy_wait<0>();
    __syncthreads();  // these rows have arrived, and all threads have read the rows before them
    fetch(step + 1);
    WideTile<kK, 16 * kDepth>& S = m.S[step % kStages];
    const bool alone = turn == kTiles - 1;  // the tile of x_j
#pragma unroll 1
    for (int back = 0; back < (alone ? 1 : 2); ++back) {
      const int by = back ? kK - turn : turn, first = back ? by : 0;  // rows j + first
      add_tile<kK, kM, kAtOnce>(dx, u, S, m.x.turned(by), first, alone);
    }
  }
  store_dx<kK, kM>(dx, p, job);
#endif
}

template <int kK, int kM>
cudaError_t contract(const PowerWide& p, cudaStream_t stream) {
  return launch(
      contract_kernel<kK, kM, 4 / kM>,
      WideJob::count(p, kWarps * 16 * kM),
      kThreads,
      sizeof(ContractMemory<kK, kM>),
      stream,
      p
  );
}

}  // namespace

cudaError_t power_wide_contract(const PowerWide& p, cudaStream_t stream) {
  return p.K == 64 ? contract<64, 2>(p, stream) : contract<128, 1>(p, stream);
}

}  // namespace horner::cuda
