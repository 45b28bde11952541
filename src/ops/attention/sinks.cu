// Adds the sinks of a window to the result of flash attention over the window. And attention_shift:
// the gradient of the log-normaliser for a backward that does not take one.
//
//   forward    x_s = scale q.k_s     n' = log(e^n + sum_s e^{x_s})     o' = e^{n-n'} o + sum_s e^{x_s-n'} v_s
//   backward   p_s = e^{x_s - n'}    dx_s = p_s (do.v_s - do.o' + dn)  dq += scale dx_s k_s   dk_s += scale dx_s q   dv_s += p_s do
//
// A block owns kRows rows t of one (b, query head). L neighbouring lanes own one row at a time, 8
// columns each. A row is read once and written once. Keys and values of the sinks are in registers.
#include "cuda/launch.cuh"
#include "ops/attention/attention.cuh"
#include "ops/attention/vectors.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 128, kRows = 256, kMost = kSinksAtOnce;

template <class T>
__device__ const uint4* row_at(const Strided& x, int64_t b, int64_t t, int64_t h, int column) {
  return reinterpret_cast<const uint4*>(
      static_cast<const T*>(x.data) + b * x.b + t * x.t + h * x.h + column
  );
}
template <class T>
__device__ uint4* row_to(const Strided& x, int64_t b, int64_t t, int64_t h, int column) {
  return reinterpret_cast<uint4*>(static_cast<T*>(x.data) + b * x.b + t * x.t + h * x.h + column);
}

// What a lane holds of its block: its columns of the sinks' keys and values.
template <class T, int L>
struct Place {
  int lane, group, h, g, column;
  int64_t b, start, end, seen;
  bool inside;
  uint4 k[kMost], v[kMost];

  __device__ explicit Place(const AttentionSinks& p) {
    lane = int(threadIdx.x) % L, group = int(threadIdx.x) / L, column = 8 * lane;
    inside = column < p.K;
    const int64_t blocks = (p.T + kRows - 1) / kRows, at = blockIdx.x / blocks;
    b = at / p.H, h = int(at % p.H), g = h / (p.H / p.G);
    start = blockIdx.x % blocks * kRows;
    end = min(p.T, start + kRows);
    seen = p.seen ? p.seen[b * p.G + g] : 0;
#pragma unroll
    for (int s = 0; s < kMost; ++s) {
      const bool there = inside && s < p.count;
      const int64_t slot = int64_t(p.first + s) * p.K + column;
      const auto at_slot = [&](const Strided& x) {
        return reinterpret_cast<const uint4*>(
            static_cast<const T*>(x.data) + b * x.b + g * x.h + slot
        );
      };
      k[s] = there ? *at_slot(p.keys) : uint4{};
      v[s] = there ? *at_slot(p.values) : uint4{};
    }
  }
  // How many of these sinks the query at t reads.
  __device__ int visible(const AttentionSinks& p, int64_t t) const {
    const int64_t all = seen + t - p.window + 1 - p.first;
    return int(max(int64_t(0), min(int64_t(p.count), all)));
  }
};

template <class T, int L>
__device__ float dot(const uint4& packed, const float (&x)[8]) {
  float y[8], sum = 0.f;
  unpack(packed, y, T());
#pragma unroll
  for (int e = 0; e < 8; ++e) sum += x[e] * y[e];
  return lane_sum<L>(sum);
}

// Rows of M tensors. They load while the rows before them are computed.
template <class T, int M>
struct Ahead {
  uint4 x[M];

  template <int L>
  __device__ void load(const Place<T, L>& at, const Strided* const (&from)[M], int64_t t) {
#pragma unroll
    for (int i = 0; i < M; ++i)
      x[i] = at.inside ? *row_at<T>(*from[i], at.b, min(t, at.end - 1), at.h, at.column) : uint4{};
  }
};

template <class T, int L>
__global__ void __launch_bounds__(kThreads, 4)
    forward_kernel(const __grid_constant__ AttentionSinks p) {
  const Place<T, L> at(p);
  if (at.seen + at.end - 1 < p.window + p.first) return;  // no row of the block reads a sink
  const Strided* const from[] = {&p.q, &p.o};
  Ahead<T, 2> now, next;
  next.load(at, from, at.start + at.group);
  for (int64_t t = at.start + at.group; t - at.group < at.end; t += kThreads / L) {
    now = next;
    const int n = t < at.end ? at.visible(p, t) : 0;
    float* norm = p.norm + (at.b * p.H + at.h) * p.T + min(t, at.end - 1);
    const float before = *norm;
    next.load(at, from, t + kThreads / L);
    float q[8], o[8], x[kMost];
    unpack(now.x[0], q, T());
    float most = before;
#pragma unroll
    for (int s = 0; s < kMost; ++s) {
      x[s] = p.scale * dot<T, L>(at.k[s], q);
      if (s < n) most = fmaxf(most, x[s]);
    }
    const float own = expf(before - most);
    float sum = own;
#pragma unroll
    for (int s = 0; s < kMost; ++s) x[s] = s < n ? expf(x[s] - most) : 0.f, sum += x[s];
    unpack(now.x[1], o, T());
#pragma unroll
    for (int e = 0; e < 8; ++e) o[e] *= own / sum;
#pragma unroll
    for (int s = 0; s < kMost; ++s) {
      float v[8];
      unpack(at.v[s], v, T());
#pragma unroll
      for (int e = 0; e < 8; ++e) o[e] += x[s] / sum * v[e];
    }
    __syncwarp();  // all lanes of the row have read its norm
    if (n == 0) continue;
    if (at.inside) *row_to<T>(p.o, at.b, t, at.h, at.column) = pack(o, T());
    if (at.lane == 0) *norm = most + logf(sum);
  }
}

template <class T, int L>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const __grid_constant__ AttentionSinks p) {
  const Place<T, L> at(p);
  if (at.seen + at.end - 1 < p.window + p.first) return;
  const Strided* const from[] = {&p.q, &p.grad, &p.o, &p.dq};
  Ahead<T, 4> now, next;
  next.load(at, from, at.start + at.group);
  float dk[kMost][8] = {}, dv[kMost][8] = {};
  for (int64_t t = at.start + at.group; t - at.group < at.end; t += kThreads / L) {
    now = next;
    next.load(at, from, t + kThreads / L);
    const int n = t < at.end ? at.visible(p, t) : 0;
    const int64_t row = min(t, at.end - 1);
    float q[8], grad[8], dq[8];
    unpack(now.x[0], q, T());
    unpack(now.x[1], grad, T());
    float delta = dot<T, L>(now.x[2], grad);
    unpack(now.x[3], dq, T());
    const float norm = p.norm[(at.b * p.H + at.h) * p.T + row];
    if (p.dnorm) delta -= p.dnorm[(at.b * p.T + row) * p.H + at.h];
#pragma unroll
    for (int s = 0; s < kMost; ++s) {
      const float x = p.scale * dot<T, L>(at.k[s], q), dp = dot<T, L>(at.v[s], grad);
      const float weight = s < n ? expf(x - norm) : 0.f;
      const float dx = p.scale * weight * (dp - delta);
      float k[8];
      unpack(at.k[s], k, T());
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        dq[e] += dx * k[e];
        dk[s][e] += dx * q[e];
        dv[s][e] += weight * grad[e];
      }
    }
    if (n > 0 && at.inside) *row_to<T>(p.dq, at.b, t, at.h, at.column) = pack(dq, T());
  }
#pragma unroll
  for (int s = 0; s < kMost; ++s) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
#pragma unroll
      for (int d = L; d < 32; d *= 2) {  // over the rows of a warp
        dk[s][e] += __shfl_xor_sync(~0u, dk[s][e], d);
        dv[s][e] += __shfl_xor_sync(~0u, dv[s][e], d);
      }
      const int64_t to = ((at.b * p.G + at.g) * p.N + p.first + s) * p.K + at.column + e;
      if (int(threadIdx.x) % 32 < L && at.inside && s < p.count) {
        atomicAdd(p.dk + to, dk[s][e]);
        atomicAdd(p.dv + to, dv[s][e]);
      }
    }
  }
}

struct Largest {
  float size;
  int column;
};
__device__ inline Largest from_lane(const Largest& x, int distance) {
  return {__shfl_xor_sync(~0u, x.size, distance), __shfl_xor_sync(~0u, x.column, distance)};
}
__device__ inline bool above(
    const Largest& a, const Largest& b
) {  // no two are equal: all lanes agree
  return a.size > b.size || (a.size == b.size && a.column < b.column);
}
__device__ inline void insert(const Largest& x, Largest& first, Largest& second) {
  if (above(x, first)) {
    second = first;
    first = x;
  } else if (above(x, second)) {
    second = x;
  }
}

// Eight lanes own a row of any width.
__global__ void __launch_bounds__(kThreads) shift_kernel(const __grid_constant__ AttentionShift p) {
  using T = __nv_bfloat16;
  constexpr int L = 8;
  constexpr float kLeast = 8.67361738e-19f;  // 2^-60
  const int64_t rows = p.B * p.T * p.H;
  const int64_t at = int64_t(blockIdx.x) * (kThreads / L) + threadIdx.x / L;
  const int64_t row = min(at, rows - 1), h = row % p.H, t = row / p.H % p.T, b = row / p.H / p.T;
  const int lane = int(threadIdx.x) % L;
  // The two columns of largest |do|. The rounding error of the shift is put into them.
  Largest first{-1.f, 1 << 30}, second = first;
  for (int column = 8 * lane; column < p.V; column += 8 * L) {
    float grad[8];
    unpack(*row_at<T>(p.grad, b, t, h, column), grad, T());
#pragma unroll
    for (int e = 0; e < 8; ++e) insert({fabsf(grad[e]), column + e}, first, second);
  }
#pragma unroll
  for (int d = L / 2; d > 0; d /= 2) {
    const Largest a = from_lane(first, d), other = from_lane(second, d);
    insert(a, first, second);
    insert(other, first, second);
  }
  const bool none = !(first.size >= kLeast);
  if (none) first = {kLeast, 0}, second = {0.f, 1};
  const float unit = first.size;  // squares of do / unit neither vanish nor overflow
  const auto load = [&](int column, float(&grad)[8]) {
    unpack(*row_at<T>(p.grad, b, t, h, column), grad, T());
    if (none && column == 0) grad[0] = kLeast;
  };
  float square = 0.f;
  for (int column = 8 * lane; column < p.V; column += 8 * L) {
    float grad[8];
    load(column, grad);
#pragma unroll
    for (int e = 0; e < 8; ++e) square += grad[e] / unit * (grad[e] / unit);
  }
  square = lane_sum<L>(square);
  const float factor = p.dnorm[row] / (unit * square);    // dn do' / |do'|^2 = factor do' / unit
  float rest = 0.f, grad_first = 0.f, grad_second = 0.f;  // <do', o> - dn minus what is written
  for (int column = 8 * lane; column < p.V; column += 8 * L) {
    float grad[8], o[8];
    load(column, grad);
    unpack(*row_at<T>(p.o, b, t, h, column), o, T());
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float whole = o[e],
                  moved = __bfloat162float(__float2bfloat16(whole - factor * (grad[e] / unit)));
      const bool one = column + e == first.column, two = column + e == second.column;
      o[e] = one || two ? 0.f : moved;
      if (one) grad_first = grad[e];
      if (two) grad_second = grad[e];
      rest += grad[e] * (whole - o[e]);
    }
    if (at < rows) {
      *reinterpret_cast<uint4*>(static_cast<T*>(p.moved_o) + row * p.V + column) = pack(o, T());
      *reinterpret_cast<uint4*>(static_cast<T*>(p.moved_grad) + row * p.V + column) =
          pack(grad, T());
    }
  }
  rest = lane_sum<L>(rest) - p.dnorm[row];
  grad_first = lane_sum<L>(grad_first);  // one lane has it, the others 0
  grad_second = lane_sum<L>(grad_second);
  const T one = __float2bfloat16(rest / grad_first);
  rest -= grad_first * __bfloat162float(one);
  const T two = __float2bfloat16(grad_second == 0.f ? 0.f : rest / grad_second);
  __syncwarp();  // the rows are written
  if (at >= rows || lane != 0) return;
  static_cast<T*>(p.moved_o)[row * p.V + first.column] = one;
  static_cast<T*>(p.moved_o)[row * p.V + second.column] = two;
}

template <class T>
cudaError_t run(const AttentionSinks& p, bool backward, cudaStream_t stream) {
  const auto kernel = p.K <= 64    ? (backward ? backward_kernel<T, 8> : forward_kernel<T, 8>)
                      : p.K <= 128 ? (backward ? backward_kernel<T, 16> : forward_kernel<T, 16>)
                                   : (backward ? backward_kernel<T, 32> : forward_kernel<T, 32>);
  const int64_t blocks = p.B * p.H * ((p.T + kRows - 1) / kRows);
  kernel<<<unsigned(blocks), kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

cudaError_t run_type(const AttentionSinks& p, bool backward, cudaStream_t stream) {
  return p.type == Element::f16 ? run<__half>(p, backward, stream)
                                : run<__nv_bfloat16>(p, backward, stream);
}

}  // namespace

cudaError_t attention_sinks_forward(const AttentionSinks& p, cudaStream_t stream) {
  return run_type(p, false, stream);
}
cudaError_t attention_sinks_backward(const AttentionSinks& p, cudaStream_t stream) {
  return run_type(p, true, stream);
}

cudaError_t attention_shift(const AttentionShift& p, cudaStream_t stream) {
  const int64_t rows = p.B * p.T * p.H, each = kThreads / 8;
  shift_kernel<<<unsigned((rows + each - 1) / each), kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace horner::cuda
