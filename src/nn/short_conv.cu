// A block owns 128 channels of 256 tokens of a row, a warp 32 of these tokens, a thread 4 channels. The last W tokens stay in
// registers. A warp also reads the W - 1 tokens before its own (in the backward also the W - 1 after).
#include "nn/short_conv.cuh"

#include <type_traits>

#include "cuda/types.cuh"

namespace horner::cuda {
namespace {

constexpr int kVector = 4;               // channels of a thread
constexpr int kWarps = 8;                // of a block; each owns a run of tokens
constexpr int kRun = 32;                 // tokens of a warp
constexpr int kChannels = 32 * kVector;  // of a block
constexpr int kTokens = kWarps * kRun;   // of a block
constexpr int kThreads = 32 * kWarps;

template <class T>
__device__ void load(float (&x)[kVector], const T* from) {
  using Bits = std::conditional_t<sizeof(T) == 2, uint2, uint4>;
  const Bits bits = *reinterpret_cast<const Bits*>(from);
  const T* all = reinterpret_cast<const T*>(&bits);
#pragma unroll
  for (int c = 0; c < kVector; ++c) x[c] = wide<float>(all[c]);
}
template <class T>
__device__ void store(T* to, const float (&x)[kVector]) {
  using Bits = std::conditional_t<sizeof(T) == 2, uint2, uint4>;
  Bits bits;
  T* all = reinterpret_cast<T*>(&bits);
#pragma unroll
  for (int c = 0; c < kVector; ++c) all[c] = narrow<T>(x[c]);
  *reinterpret_cast<Bits*>(to) = bits;
}

// What a thread owns: 4 channels from `channel` on, and the tokens begin .. end of row b.
struct Share {
  int64_t b, begin, end, channel;
  bool any;
  __device__ explicit Share(const Conv& p) {
    const int64_t blocks = (p.T + kTokens - 1) / kTokens;
    b = blockIdx.x / blocks;
    begin = blockIdx.x % blocks * kTokens + int64_t(threadIdx.x / 32) * kRun;
    end = min(begin + kRun, p.T);
    channel = int64_t(blockIdx.y) * kChannels + int64_t(threadIdx.x % 32) * kVector;
    any = begin < p.T && channel < p.C;
  }
};

// The weights of a thread's channels. a(): the pre-activation of a window of W tokens, the newest at `newest`.
template <int W>
struct Filter {
  float w[W][kVector], b[kVector];
  __device__ Filter(const Conv& p, int64_t channel) {
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
#pragma unroll
      for (int j = 0; j < W; ++j) w[j][c] = p.weight[(channel + c) * W + j];
      b[c] = p.bias[channel + c];
    }
  }
  // window[(newest + 1 + j) % W] = x_{t-W+1+j}
  __device__ float a(const float (&window)[W][kVector], int newest, int c) const {
    float sum = b[c];
#pragma unroll
    for (int j = 0; j < W; ++j) sum += w[j][c] * window[(newest + 1 + j) % W][c];
    return sum;
  }
};

template <class T, int W>
__global__ void __launch_bounds__(kThreads) forward_kernel(const __grid_constant__ Conv p) {
  const Share own(p);
  if (!own.any) return;
  const Filter<W> filter(p, own.channel);
  const T* x = static_cast<const T*>(p.x) + own.b * p.T * p.C + own.channel;
  T* y = static_cast<T*>(p.y) + own.b * p.T * p.C + own.channel;
  float window[W][kVector] = {};
#pragma unroll
  for (int i = 0; i + 1 < W; ++i) {  // the W - 1 tokens before: x_{begin-W+1+i} into place i
    if (own.begin - W + 1 + i >= 0) load(window[i], x + (own.begin - W + 1 + i) * p.C);
  }
  for (int64_t t = own.begin; t < own.end; t += W) {
    float next[W][kVector] = {};
#pragma unroll
    for (int i = 0; i < W; ++i) {
      if (t + i < own.end) load(next[i], x + (t + i) * p.C);
    }
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const int newest = (W - 1 + i) % W;
      float out[kVector];
#pragma unroll
      for (int c = 0; c < kVector; ++c) {
        window[newest][c] = next[i][c];
        const float a = filter.a(window, newest, c);
        out[c] = p.silu ? a / (1.f + __expf(-a)) : a;
      }
      if (t + i < own.end) store(y + (t + i) * p.C, out);
    }
  }
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads) backward_kernel(const __grid_constant__ Conv p) {
  __shared__ float sums[kWarps][W + 1][kChannels];
  const Share own(p);
  float dw[W + 1][kVector] = {};
  if (own.any) {
    const Filter<W> filter(p, own.channel);
    const int64_t at = own.b * p.T * p.C + own.channel;
    const T *x = static_cast<const T*>(p.x) + at, *dy = static_cast<const T*>(p.dy) + at;
    T* dx = static_cast<T*>(p.dx) + at;
    float window[W][kVector] = {},
          dz[W][kVector] = {};  // rings; the newest of both is at the same place
#pragma unroll
    for (int i = 0; i + 1 < W; ++i) {
      if (own.begin - W + 1 + i >= 0) load(window[i], x + (own.begin - W + 1 + i) * p.C);
    }
    for (int64_t t = own.begin; t < own.end + W - 1;
         t += W) {  // W - 1 more: dx_t needs dz up to t + W - 1
      float next[W][kVector] = {}, grad[W][kVector] = {};
#pragma unroll
      for (int i = 0; i < W; ++i) {
        if (t + i >= min(own.end + W - 1, p.T)) continue;
        load(next[i], x + (t + i) * p.C);
        load(grad[i], dy + (t + i) * p.C);
      }
#pragma unroll
      for (int i = 0; i < W; ++i) {
        const int newest = (W - 1 + i) % W;
        const bool mine = t + i < own.end;
        float out[kVector];
#pragma unroll
        for (int c = 0; c < kVector; ++c) {
          window[newest][c] = next[i][c];
          float slope = 1.f;
          if (p.silu) {
            const float a = filter.a(window, newest, c), s = 1.f / (1.f + __expf(-a));
            slope = s * (1.f + a * (1.f - s));  // (a sigmoid(a))'
          }
          const float d = grad[i][c] * slope;
          dz[newest][c] = d;
          // dx_{t-W+1} = sum_j w_j dz_{t-j}
          out[c] = 0.f;
#pragma unroll
          for (int j = 0; j < W; ++j) {
            out[c] += filter.w[j][c] * dz[(newest + W - j) % W][c];
            if (mine) dw[j][c] += d * window[(newest + 1 + j) % W][c];
          }
          if (mine) dw[W][c] += d;
        }
        const int64_t whole = t + i - W + 1;
        if (whole >= own.begin && whole < own.end) store(dx + whole * p.C, out);
      }
    }
  }
  // The sums of the block's warps, in their order.
#pragma unroll
  for (int j = 0; j <= W; ++j) {
#pragma unroll
    for (int c = 0; c < kVector; ++c)
      sums[threadIdx.x / 32][j][threadIdx.x % 32 * kVector + c] = dw[j][c];
  }
  __syncthreads();
  for (int i = int(threadIdx.x); i < (W + 1) * kChannels; i += kThreads) {
    const int64_t channel = int64_t(blockIdx.y) * kChannels + i % kChannels;
    float sum = 0.f;
#pragma unroll
    for (int n = 0; n < kWarps; ++n) sum += sums[n][i / kChannels][i % kChannels];
    if (channel < p.C)
      p.dweights[(int64_t(blockIdx.x) * (W + 1) + i / kChannels) * p.C + channel] = sum;
  }
}

template <class T, int W>
void start(const Conv& p, bool back, cudaStream_t stream) {
  const dim3 grid(unsigned(conv_parts(p)), unsigned((p.C + kChannels - 1) / kChannels));
  if (back) {
    backward_kernel<T, W><<<grid, kThreads, 0, stream>>>(p);
  } else {
    forward_kernel<T, W><<<grid, kThreads, 0, stream>>>(p);
  }
}

template <class T>
cudaError_t start(const Conv& p, bool back, cudaStream_t stream) {
  switch (p.W) {
    case 1: start<T, 1>(p, back, stream); break;
    case 2: start<T, 2>(p, back, stream); break;
    case 3: start<T, 3>(p, back, stream); break;
    case 4: start<T, 4>(p, back, stream); break;
    default: return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace

int64_t conv_parts(const Conv& p) { return p.B * ((p.T + kTokens - 1) / kTokens); }

cudaError_t conv_forward(const Conv& p, cudaStream_t stream) {
  return p.bf16 ? start<__nv_bfloat16>(p, false, stream) : start<float>(p, false, stream);
}

cudaError_t conv_backward(const Conv& p, cudaStream_t stream) {
  return p.bf16 ? start<__nv_bfloat16>(p, true, stream) : start<float>(p, true, stream);
}

}  // namespace horner::cuda
