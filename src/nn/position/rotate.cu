#include "nn/position/rotate.cuh"

#include "cuda/octet.cuh"
#include "cuda/types.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 256, kAtOnce = 4;  // heads that a thread reads before it writes

__device__ int64_t angle_at(const Rotate& p, int64_t token, int64_t t) {
  return (p.per_row ? token : t) * p.A * p.P;
}

struct Head {
  int side, h;
};
__device__ Head head_at(const Rotate& p, int all) {  // of the heads of both sides
  const int first = p.sides[0].H;
  return all < first ? Head{0, all} : Head{1, all - first};
}

// A block owns whole tokens. A token has P / 8 octets times `lanes` threads: a thread owns eight pairs of every lanes-th head,
// whose c and s it reads once if the heads share them. Nothing is shared between threads.
template <class T, bool per_head>
__global__ void __launch_bounds__(kThreads)
    rotate_octets_kernel(const __grid_constant__ Rotate p, int lanes) {
  const int octets = p.P / 8, threads = octets * lanes, heads = p.sides[0].H + p.sides[1].H;
  const int tokens = kThreads / threads, own = int(threadIdx.x) / threads;
  const int64_t token = int64_t(blockIdx.x) * tokens + own;
  if (own >= tokens || token >= p.B * p.T) return;
  const unsigned b = unsigned(token) / unsigned(p.T), t = unsigned(token) - b * unsigned(p.T);
  const int j = int(threadIdx.x) % octets * 8, lane = int(threadIdx.x) % threads / octets;
  const int64_t angle = angle_at(p, token, t) + j;
  float c[8], s[8], x0[8], x1[8];
  if (!per_head) {
    Octet<float>::read(p.c + angle).unpack(c);
    Octet<float>::read(p.s + angle).unpack(s);
  }
  for (int first = lane; first < heads; first += kAtOnce * lanes) {
    Octet<T> a[kAtOnce], d[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int all = first + u * lanes;
      if (all >= heads) continue;
      const auto [which, h] = head_at(p, all);
      const RotateSide& side = p.sides[which];
      const T* x = static_cast<const T*>(side.x) + b * side.b + t * side.t + h * side.h + j;
      a[u] = Octet<T>::read(x);
      d[u] = Octet<T>::read(x + p.P);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int all = first + u * lanes;
      if (all >= heads) continue;
      const auto [which, h] = head_at(p, all);
      const RotateSide& side = p.sides[which];
      if (per_head) {
        Octet<float>::read(p.c + angle + h / side.r * p.P).unpack(c);
        Octet<float>::read(p.s + angle + h / side.r * p.P).unpack(s);
      }
      a[u].unpack(x0);
      d[u].unpack(x1);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float u0 = x0[i], u1 = x1[i], sine = p.sign * s[i];
        x0[i] = u0 * c[i] - u1 * sine;  // y_j = x_j c - x_{j+P} s
        x1[i] = u0 * sine + u1 * c[i];  // y_{j+P} = x_j s + x_{j+P} c
      }
      T* y = static_cast<T*>(side.y) + (token * side.H + h) * 2 * p.P + j;
      Octet<T>::pack(x0).write(y);
      Octet<T>::pack(x1).write(y + p.P);
    }
  }
}

// Any P and any place. A block owns 256 consecutive pairs of the flat (B T H, P), a thread one pair; nothing is shared.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rotate_pairs_kernel(const __grid_constant__ Rotate p, int which) {
  const RotateSide& side = p.sides[which];
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= p.B * p.T * side.H * p.P) return;
  const int64_t j = i % p.P, row = i / p.P;  // row = (b T + t) H + h
  const int64_t h = row % side.H, token = row / side.H, b = token / p.T, t = token % p.T;
  const int64_t angle = angle_at(p, token, t) + h / side.r * p.P + j;
  const T* x = static_cast<const T*>(side.x) + b * side.b + t * side.t + h * side.h + j;
  T* y = static_cast<T*>(side.y) + row * 2 * p.P + j;
  const float x0 = wide<float>(x[0]), x1 = wide<float>(x[p.P]);
  const float c = p.c[angle], s = p.sign * p.s[angle];
  y[0] = narrow<T>(x0 * c - x1 * s);
  y[p.P] = narrow<T>(x0 * s + x1 * c);
}

template <class T>
cudaError_t start(const Rotate& p, cudaStream_t stream) {
  const int octets = p.P / 8;
  if (p.octets && octets <= kThreads && p.B * p.T < int64_t(1) << 31) {
    const int lanes = octets < 32 ? 32 / octets : 1;
    const int64_t tokens = kThreads / (octets * lanes);
    const auto blocks = unsigned((p.B * p.T + tokens - 1) / tokens);
    if (p.A > 1)
      rotate_octets_kernel<T, true><<<blocks, kThreads, 0, stream>>>(p, lanes);
    else
      rotate_octets_kernel<T, false><<<blocks, kThreads, 0, stream>>>(p, lanes);
    return cudaGetLastError();
  }
  for (int which = 0; which < 2; ++which) {
    const int64_t pairs = p.B * p.T * p.sides[which].H * p.P;
    if (pairs == 0) continue;
    const auto blocks = unsigned((pairs + kThreads - 1) / kThreads);
    rotate_pairs_kernel<T><<<blocks, kThreads, 0, stream>>>(p, which);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t rotate(const Rotate& p, cudaStream_t stream) {
  return p.bf16 ? start<__nv_bfloat16>(p, stream) : start<float>(p, stream);
}

}  // namespace horner::cuda
