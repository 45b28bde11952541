// A block owns 128 channels of 512 tokens of a row, a warp 64 of these tokens, a thread 4 channels. The last W tokens stay in
// registers, and the next W tokens are on their way while these are computed. A warp also reads the W - 1 tokens before its
// own (in the backward also the W - 1 after). A head that gets unit length lies inside a warp.
#include "nn/short_conv.cuh"

#include <type_traits>

#include "cuda/types.cuh"

namespace horner::cuda {
namespace {

constexpr int kVector = 4;               // channels of a thread
constexpr int kWarps = 8;                // of a block; each owns a run of tokens
constexpr int kRun = 64;                 // tokens of a warp
constexpr int kChannels = 32 * kVector;  // of a block
constexpr int kTokens = kWarps * kRun;   // of a block
constexpr int kThreads = 32 * kWarps;
constexpr float kUnitEps = 1e-6f;  // of nn/norm.h: unit_length

// Blocks of the backward per multiprocessor, as far as registers allow.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kResident = 1;
#else
constexpr int kResident = 2;
#endif

template <class T>
using Bits = std::conditional_t<sizeof(T) == 2, uint2, uint4>;

template <class T>
__device__ void widen(float (&x)[kVector], const Bits<T>& bits) {
  const T* all = reinterpret_cast<const T*>(&bits);
#pragma unroll
  for (int c = 0; c < kVector; ++c) x[c] = wide<float>(all[c]);
}
template <class T>
__device__ Bits<T> fetch(const T* from, bool there) {
  return there ? *reinterpret_cast<const Bits<T>*>(from) : Bits<T>{};
}
template <class T>
__device__ void store(T* to, const float (&x)[kVector]) {
  Bits<T> bits;
  T* all = reinterpret_cast<T*>(&bits);
#pragma unroll
  for (int c = 0; c < kVector; ++c) all[c] = narrow<T>(x[c]);
  *reinterpret_cast<Bits<T>*>(to) = bits;
}

// What a thread owns: 4 channels of a part, from `channel` on, and the tokens begin .. end of row b. All threads of a warp
// go through all of its tokens, for the sums over heads; one without channels reads and writes nothing.
struct Share {
  int part, block, channel, begin, end;  // block: of the part
  int64_t b;
  bool some;
  __device__ explicit Share(const Conv& p) {
    block = int(blockIdx.y);
    for (part = 0; part + 1 < p.parts; ++part) {
      const int own = (p.part[part].C + kChannels - 1) / kChannels;
      if (block < own) break;
      block -= own;
    }
    const int T = int(p.T), blocks = (T + kTokens - 1) / kTokens;
    b = int(blockIdx.x) / blocks;
    begin = int(blockIdx.x) % blocks * kTokens + int(threadIdx.x / 32) * kRun;
    end = min(begin + kRun, T);
    channel = block * kChannels + int(threadIdx.x % 32) * kVector;
    some = channel < p.part[part].C;
    if (!some) channel = 0;
  }
};

// The weights of a thread's channels. a(): the pre-activation of a window of W tokens, the newest at `newest`.
template <int W>
struct Filter {
  float w[W][kVector], b[kVector];
  __device__ Filter(const Conv& p, int channel) {
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      if constexpr (W == 4) {
        const float4 all = reinterpret_cast<const float4*>(p.weight)[channel + c];
        w[0][c] = all.x, w[1][c] = all.y, w[2][c] = all.z, w[3][c] = all.w;
      } else {
#pragma unroll
        for (int j = 0; j < W; ++j) w[j][c] = p.weight[(channel + c) * W + j];
      }
      b[c] = p.bias != nullptr ? p.bias[channel + c] : 0.f;
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

// Threads of a head that gets unit length. A loop over the tokens is compiled for each, because a choice between two tokens
// would keep the second from starting before the first has ended.
constexpr int kNoHead = 0, kUsualHead = 16, kAnyHead = -1;

// The sum over the threads of a head of `unit` channels.
template <int kHead>
__device__ float head_sum(float x, int unit) {
#pragma unroll
  for (int step = (kHead > 0 ? kHead : 32) / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(~0u, x, step);
    x += kHead > 0 || step * kVector < unit ? other : 0.f;
  }
  return x;
}

// The W - 1 tokens before the first one: x_{begin-W+1+i} into place i.
template <class T, int W>
__device__ __forceinline__ void load_before(
    float (&window)[W][kVector], const T* x, int token, const Share& own
) {
#pragma unroll
  for (int i = 0; i + 1 < W; ++i) {
    const int t = own.begin - W + 1 + i;
    widen<T>(window[i], fetch(x + t * token, own.some && t >= 0));
  }
}

template <class T, int W, bool kSilu, int kHead>
__device__ void forward_tokens(const Conv& p, const Share& own) {
  const ConvPart& part = p.part[own.part];
  const Filter<W> filter(p, part.first + own.channel);
  const T* x = static_cast<const T*>(part.x) + own.b * part.row + own.channel;
  T* y = static_cast<T*>(part.y) + own.b * p.T * part.C + own.channel;
  const int token = part.token;
  float window[W][kVector] = {};
  load_before<T>(window, x, token, own);
  Bits<T> next[W];
  const int last = own.some ? own.end : 0;
#pragma unroll
  for (int i = 0; i < W; ++i) next[i] = fetch(x + (own.begin + i) * token, own.begin + i < last);
  for (int t = own.begin; t < own.end; t += W) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const int newest = (W - 1 + i) % W;
      float out[kVector], square = 0.f;
      widen<T>(window[newest], next[i]);
      next[i] = fetch(x + (t + W + i) * token, t + W + i < last);
#pragma unroll
      for (int c = 0; c < kVector; ++c) {
        const float a = filter.a(window, newest, c);
        out[c] = kSilu ? __fdividef(a, 1.f + __expf(-a)) : a;
        square += out[c] * out[c];
      }
      if constexpr (kHead != kNoHead) {
        const float r = rsqrtf(head_sum<kHead>(square, part.unit) + kUnitEps);
#pragma unroll
        for (int c = 0; c < kVector; ++c) out[c] *= r;
      }
      if (t + i < last) store(y + (t + i) * part.C, out);
    }
  }
}

template <class T, int W, bool kSilu>
__global__ void __launch_bounds__(kThreads) forward_kernel(const __grid_constant__ Conv p) {
  const Share own(p);
  if (own.begin >= own.end) return;
  const int unit = p.part[own.part].unit;
  if (unit == 0)
    forward_tokens<T, W, kSilu, kNoHead>(p, own);
  else if (unit == kUsualHead * kVector)
    forward_tokens<T, W, kSilu, kUsualHead>(p, own);
  else
    forward_tokens<T, W, kSilu, kAnyHead>(p, own);
}

// The sums of the block's warps, in their order.
template <int W>
__device__ void sum_weights(
    const float (&dw)[W + 1][kVector],
    float (&sums)[kWarps][W + 1][kChannels],
    const Conv& p,
    const Share& own
) {
#pragma unroll
  for (int j = 0; j <= W; ++j) {
#pragma unroll
    for (int c = 0; c < kVector; ++c)
      sums[threadIdx.x / 32][j][threadIdx.x % 32 * kVector + c] = dw[j][c];
  }
  __syncthreads();
  const ConvPart& part = p.part[own.part];
  for (int i = int(threadIdx.x); i < (W + 1) * kChannels; i += kThreads) {
    const int channel = own.block * kChannels + i % kChannels;
    float sum = 0.f;
#pragma unroll
    for (int n = 0; n < kWarps; ++n) sum += sums[n][i / kChannels][i % kChannels];
    if (channel < part.C)
      p.dweights[(int64_t(blockIdx.x) * (W + 1) + i / kChannels) * p.C + part.first + channel] =
          sum;
  }
}

// With o = s r, s = act(a), r = 1 / sqrt(sum s^2 + eps) over a head:  ds = r do - s r^3 sum(s do).  Without: ds = do.
template <class T, int W, bool kSilu, int kHead>
__device__ void backward_tokens(const Conv& p, const Share& own, float (&dw)[W + 1][kVector]) {
  constexpr int kAhead = W % 2 == 0 ? 2 : W;  // tokens that are on their way
  const ConvPart& part = p.part[own.part];
  const Filter<W> filter(p, part.first + own.channel);
  const int64_t at = own.b * p.T * part.C + own.channel;
  const int C = part.C, token = part.token;
  const T *x = static_cast<const T*>(part.x) + own.b * part.row + own.channel,
          *dy = static_cast<const T*>(part.dy) + at;
  T* dx = static_cast<T*>(part.dx) + at;
  const int last = own.some ? min(own.end + W - 1, int(p.T)) : 0;  // dx_t needs dz up to t + W - 1
  float window[W][kVector] = {}, dz[W][kVector] = {};  // rings with the newest at one place
  load_before<T>(window, x, token, own);
  Bits<T> next[kAhead], next_dy[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    next[i] = fetch(x + (own.begin + i) * token, own.begin + i < last);
    next_dy[i] = fetch(dy + (own.begin + i) * C, own.begin + i < last);
  }
  for (int t = own.begin; t < own.end + W - 1; t += W) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const int newest = (W - 1 + i) % W;
      const bool mine = t + i < own.end;
      float d[kVector], s[kVector], e[kVector], out[kVector] = {}, square = 0.f, dot = 0.f;
      widen<T>(window[newest], next[i % kAhead]);
      widen<T>(d, next_dy[i % kAhead]);
      next[i % kAhead] = fetch(x + (t + kAhead + i) * token, t + kAhead + i < last);
      next_dy[i % kAhead] = fetch(dy + (t + kAhead + i) * C, t + kAhead + i < last);
#pragma unroll
      for (int c = 0; c < kVector; ++c) {
        const float a = filter.a(window, newest, c);
        e[c] = kSilu ? __fdividef(1.f, 1.f + __expf(-a)) : 1.f;
        s[c] = a * e[c];
        square += s[c] * s[c];
        dot += s[c] * d[c];
      }
      if constexpr (kHead != kNoHead) {
        const float r = rsqrtf(head_sum<kHead>(square, part.unit) + kUnitEps);
        const float back = head_sum<kHead>(dot, part.unit) * r * r * r;
#pragma unroll
        for (int c = 0; c < kVector; ++c) d[c] = r * d[c] - back * s[c];
      }
#pragma unroll
      for (int c = 0; c < kVector; ++c) {
        d[c] *= e[c] + s[c] * (1.f - e[c]);  // act'(a)
        dz[newest][c] = d[c];
        // dx_{t-W+1} = sum_j w_j dz_{t-j}
#pragma unroll
        for (int j = 0; j < W; ++j) {
          out[c] += filter.w[j][c] * dz[(newest + W - j) % W][c];
          if (mine) dw[j][c] += d[c] * window[(newest + 1 + j) % W][c];
        }
        if (mine) dw[W][c] += d[c];
      }
      const int whole = t + i - W + 1;
      if (own.some && whole >= own.begin && whole < own.end) store(dx + whole * C, out);
    }
  }
}

template <class T, int W, bool kSilu>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 2 ? kResident : 1)
    backward_kernel(const __grid_constant__ Conv p) {
  __shared__ float sums[kWarps][W + 1][kChannels];
  const Share own(p);
  const int unit = p.part[own.part].unit;
  float dw[W + 1][kVector] = {};
  if (own.begin >= own.end) {
  } else if (unit == 0) {
    backward_tokens<T, W, kSilu, kNoHead>(p, own, dw);
  } else if (unit == kUsualHead * kVector) {
    backward_tokens<T, W, kSilu, kUsualHead>(p, own, dw);
  } else {
    backward_tokens<T, W, kSilu, kAnyHead>(p, own, dw);
  }
  sum_weights<W>(dw, sums, p, own);
}

template <class T, int W, bool kSilu>
void start(const Conv& p, bool back, cudaStream_t stream) {
  int blocks = 0;
  for (int i = 0; i < p.parts; ++i) blocks += (p.part[i].C + kChannels - 1) / kChannels;
  const dim3 grid(unsigned(conv_sums(p)), unsigned(blocks));
  if (back) {
    backward_kernel<T, W, kSilu><<<grid, kThreads, 0, stream>>>(p);
  } else {
    forward_kernel<T, W, kSilu><<<grid, kThreads, 0, stream>>>(p);
  }
}

template <class T, int W>
void start(const Conv& p, bool back, cudaStream_t stream) {
  p.silu ? start<T, W, true>(p, back, stream) : start<T, W, false>(p, back, stream);
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

int64_t conv_sums(const Conv& p) { return p.B * ((p.T + kTokens - 1) / kTokens); }

cudaError_t conv_forward(const Conv& p, cudaStream_t stream) {
  return p.bf16 ? start<__nv_bfloat16>(p, false, stream) : start<float>(p, false, stream);
}

cudaError_t conv_backward(const Conv& p, cudaStream_t stream) {
  return p.bf16 ? start<__nv_bfloat16>(p, true, stream) : start<float>(p, true, stream);
}

}  // namespace horner::cuda
