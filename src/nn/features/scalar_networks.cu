// A thread finds the piece of its number u in a tree of all kinks, and reads the functions' lines on it. In the backward
// `wide` neighbouring lanes share a number, one function each, and every thread adds dy and dy u to sums of its own in shared
// memory, one for each piece: no two threads meet, so there are no conflicts, and the same call gives the same bits.
#include "nn/features/scalar_networks.cuh"

#include "cuda/device.h"
#include "cuda/launch.cuh"
#include "cuda/types.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 256, kEach = 4;   // of the forward; numbers of a thread
constexpr int64_t kLinesBytes = 48 << 10;  // longer tables stay in the L1 cache

template <class T, int kNumbers>
struct alignas(sizeof(T) * kNumbers > 16 ? 16 : sizeof(T) * kNumbers) Row {
  T x[kNumbers];
};

bool lines_fit(const NetworkShape& s) { return s.lines() <= kLinesBytes; }
int64_t table_bytes(const NetworkShape& s) {
  return s.tree() + s.anchors() + (lines_fit(s) ? s.lines() : 0);
}

// The tables in shared memory, the lines where they lie if they are long.
__device__ NetworkTables load_tables(void* memory, const ScalarNetworks& p, int64_t bytes) {
  NetworkTables near(p.shape, memory);
  const NetworkTables far(p.shape, p.tables);
  for (int i = int(threadIdx.x); i < int(bytes / 16); i += int(blockDim.x))
    static_cast<uint4*>(memory)[i] = static_cast<const uint4*>(p.tables)[i];
  if (bytes < p.shape.tree() + p.shape.anchors() + p.shape.lines()) near.lines = far.lines;
  return near;
}

template <int kNumbers>
__device__ void find(
    int (&piece)[kNumbers], const float (&u)[kNumbers], const float* tree, int levels
) {
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) piece[i] = 1;
  for (int level = 0; level < levels; ++level) {
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) piece[i] = 2 * piece[i] + (tree[piece[i]] < u[i] ? 1 : 0);
  }
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) piece[i] -= 1 << levels;
}

template <class T>
__device__ float number(const ScalarNetworks& p, int64_t at, float shift) {
  return at < p.n ? wide<float>(static_cast<const T*>(p.u)[at]) + shift : 0.f;
}

__device__ float shift_of(const ScalarNetworks& p) {  // of each 32nd number from this thread's on
  return p.shift != nullptr ? p.shift[int(threadIdx.x) & (p.M - 1)] : 0.f;
}

template <class T, int kWide>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ ScalarNetworks p, int64_t bytes) {
  HORNER_DYNAMIC_MEMORY(memory);
  const NetworkTables own = load_tables(memory, p, bytes);
  __syncthreads();
  const float shift = shift_of(p);
  T* to = static_cast<T*>(p.y);
  for (int64_t first = int64_t(blockIdx.x) * kThreads * kEach; first < p.n;
       first += int64_t(gridDim.x) * kThreads * kEach) {
    float u[kEach];
    int piece[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) u[i] = number<T>(p, first + i * kThreads + threadIdx.x, shift);
    find(piece, u, own.tree, p.shape.levels);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t at = first + i * kThreads + threadIdx.x;
      if (at >= p.n) continue;
      const float x = u[i] - own.anchors[piece[i]];
      Row<T, kWide> row;
#pragma unroll
      for (int r = 0; r < kWide; ++r) {
        const float2 line = own.lines[piece[i] * kWide + r];
        float y = line.x * x + line.y;
        if (p.positive && y < 0.f) y = 0.f;  // keeps NaN
        row.x[r] = narrow<T>(p.scale * y);
      }
      if (p.shape.R == kWide) {
        *reinterpret_cast<Row<T, kWide>*>(to + at * kWide) = row;
      } else {
#pragma unroll
        for (int r = 0; r < kWide; ++r)
          if (r < p.shape.R) to[at * p.shape.R + r] = row.x[r];
      }
    }
  }
}

// Sums over the threads of a block: each place over the lanes of a function, then over the warps, in their order.
template <int kWide>
__device__ void store_sums(const float2* sums, const ScalarNetworks& p) {
  const int threads = int(blockDim.x), lane = int(threadIdx.x) % 32;
  const int64_t block = int64_t(blockIdx.x) * p.shape.groups + blockIdx.y;
  for (int place = int(threadIdx.x) / 32; place < p.shape.rows; place += threads / 32) {
    float2 sum = {0.f, 0.f};
    for (int i = lane; i < threads; i += 32) {
      const float2 x = sums[place * threads + i];
      sum.x += x.x, sum.y += x.y;
    }
#pragma unroll
    for (int step = 16; step >= kWide; step /= 2) {
      sum.x += __shfl_xor_sync(~0u, sum.x, step);
      sum.y += __shfl_xor_sync(~0u, sum.y, step);
    }
    if (lane < p.shape.R) p.sums[(block * p.shape.R + lane) * p.shape.rows + place] = sum;
  }
}

// A warp's share: 32 numbers u. Step k has the numbers from k 32 / wide on, a lane one function of one number.
template <class T, int kWide>
__device__ float backward_tile(
    const ScalarNetworks& p,
    const NetworkTables& own,
    const unsigned char* places,
    float2* sums,
    int64_t first,
    float u,
    int piece
) {
  constexpr int kNumbers = 32 / kWide;
  const int lane = int(threadIdx.x) % 32, r = lane % kWide;
  const float x = u - own.anchors[piece];
  const T* dy = static_cast<const T*>(p.dy) + first * p.shape.R;
  const int count = p.n - first < 32 ? int(p.n - first) : 32;
  float its_u[kWide], d[kWide], du = 0.f;
  float2* sum[kWide];
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    const int from = k * kNumbers + lane / kWide;
    const float its_x = __shfl_sync(~0u, x, from);
    const int row = __shfl_sync(~0u, piece, from) * kWide + r;
    its_u[k] = __shfl_sync(~0u, u, from);
    const bool some = r < p.shape.R && from < count;
    const float2 line = own.lines[row];
    d[k] = some ? wide<float>(dy[from * p.shape.R + r]) : 0.f;
    if (p.positive && line.x * its_x + line.y <= 0.f) d[k] = 0.f;
    d[k] *= p.scale;
    sum[k] = sums + int(places[row]) * int(blockDim.x);
    float part = d[k] * line.x;
#pragma unroll
    for (int step = kWide / 2; step > 0; step /= 2) part += __shfl_xor_sync(~0u, part, step);
    part = __shfl_sync(~0u, part, lane % kNumbers * kWide);
    if (lane / kNumbers == k) du = part;
  }
#pragma unroll
  for (int k = 0; k < kWide; ++k) {  // a number beyond the end has u = d = 0
    const float2 before = *sum[k];
    *sum[k] = make_float2(before.x + d[k], before.y + d[k] * its_u[k]);
  }
  return du;
}

template <class T, int kWide>
__global__ void __launch_bounds__(kThreads, 1)
    backward_kernel(const __grid_constant__ ScalarNetworks p, int64_t bytes) {
  constexpr int kTiles = 2;
  HORNER_DYNAMIC_MEMORY(memory);
  const int threads = int(blockDim.x), lane = int(threadIdx.x) % 32;
  const NetworkTables own = load_tables(memory, p, bytes);
  unsigned char* places = memory + bytes;
  const int64_t of_group = p.shape.places();
  for (int i = int(threadIdx.x); i < int(of_group); i += threads)
    places[i] = NetworkTables(p.shape, p.tables).places[blockIdx.y * of_group + i];
  float2* all = reinterpret_cast<float2*>(places + of_group);  // [place][thread]
  float2* sums = all + threadIdx.x;
  for (int i = 0; i < p.shape.rows; ++i) sums[i * threads] = {0.f, 0.f};
  __syncthreads();
  const float shift = shift_of(p);
  const int64_t warps = int64_t(gridDim.x) * threads / 32;
  float shift_sum = 0.f;
  for (int64_t tile = int64_t(blockIdx.x) * threads / 32 + threadIdx.x / 32; tile * 32 < p.n;
       tile += kTiles * warps) {
    float u[kTiles];
    int piece[kTiles];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) u[i] = number<T>(p, (tile + i * warps) * 32 + lane, shift);
    find(piece, u, own.tree, p.shape.levels);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int64_t first = (tile + i * warps) * 32;
      const float du = backward_tile<T, kWide>(p, own, places, sums, first, u[i], piece[i]);
      if (first + lane < p.n && blockIdx.y == 0) {
        static_cast<T*>(p.du)[first + lane] = narrow<T>(du);
        shift_sum += du;
      }
    }
  }
  __syncthreads();
  store_sums<kWide>(all, p);
  if (p.shift == nullptr || blockIdx.y > 0) return;
  __syncthreads();
  float* of_shift = reinterpret_cast<float*>(all);
  of_shift[threadIdx.x] = shift_sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  for (int i = lane + 32; i < threads; i += 32) shift_sum += of_shift[i];
  p.shift_sums[int64_t(blockIdx.x) * 32 + lane] = shift_sum;
}

template <class T, int kWide>
cudaError_t start(const ScalarNetworks& p, bool back, cudaStream_t stream) {
  const int64_t bytes = table_bytes(p.shape);
  if (!back) {
    const int64_t tiles = (p.n + kThreads * kEach - 1) / (kThreads * kEach);
    const int64_t most = int64_t(processors()) * 8;
    return launch(
        forward_kernel<T, kWide>,
        tiles < most ? tiles : most,
        kThreads,
        size_t(bytes),
        stream,
        p,
        bytes
    );
  }
  int device = 0, most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  int threads = kThreads;
  const auto needed = [&] {
    return bytes + p.shape.places() + int64_t(sizeof(float2)) * p.shape.rows * threads;
  };
  while (threads > 32 && needed() > most) threads /= 2;
  const auto kernel = backward_kernel<T, kWide>;
  if (error == cudaSuccess)
    error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(needed()));
  if (error != cudaSuccess) return error;
  const dim3 grid(unsigned(p.parts), unsigned(p.shape.groups));
  kernel<<<grid, threads, size_t(needed()), stream>>>(p, bytes);
  return cudaGetLastError();
}

template <class T>
cudaError_t start(const ScalarNetworks& p, bool back, cudaStream_t stream) {
  switch (p.shape.wide) {
    case 1: return start<T, 1>(p, back, stream);
    case 2: return start<T, 2>(p, back, stream);
    case 4: return start<T, 4>(p, back, stream);
    case 8: return start<T, 8>(p, back, stream);
    case 16: return start<T, 16>(p, back, stream);
    default: return cudaErrorInvalidValue;
  }
}
cudaError_t start(const ScalarNetworks& p, bool back, cudaStream_t stream) {
  return p.bf16 ? start<__nv_bfloat16>(p, back, stream) : start<float>(p, back, stream);
}

}  // namespace

int network_parts(const ScalarNetworks& p) {
  const int64_t tiles = (p.n + kThreads - 1) / kThreads;
  const int64_t most = processors();
  return int(tiles < most ? tiles : most);
}

cudaError_t networks_forward(const ScalarNetworks& p, cudaStream_t stream) {
  return start(p, false, stream);
}
cudaError_t networks_backward(const ScalarNetworks& p, cudaStream_t stream) {
  return start(p, true, stream);
}

}  // namespace horner::cuda
