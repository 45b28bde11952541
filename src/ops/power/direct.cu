// `power`, level 1: the sums of power.cuh as written there, all pairs, any order, K, V <= 256. The oracle.
#include "cuda/types.cuh"
#include "ops/power/power.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 128, kMost = 256 / kThreads;  // most columns of a thread

template <class T>
__device__ const T* row(const Rows& x, int64_t b, int64_t t, int64_t h) {
  return static_cast<const T*>(x.data) + b * x.b + t * x.t + (h / x.group) * x.h;
}

template <class A, class T>
__device__ A dot(const T* a, const T* b, int n) {
  A sum = 0;
#pragma unroll 1
  for (int i = 0; i < n; ++i) sum += wide<A>(a[i]) * wide<A>(b[i]);
  return sum;
}

template <class A>
__device__ A block_sum(A x) {
  __shared__ A parts[kThreads];
  __syncthreads();
  parts[threadIdx.x] = x;
  __syncthreads();
  A sum = 0;
#pragma unroll 1
  for (int i = 0; i < kThreads; ++i) sum += parts[i];
  return sum;
}

// p(x) and p'(x) by Horner's rule.
template <class A>
__device__ void polynomial(const PowerDirect& p, A x, A& value, A& slope) {
  value = A(p.c[p.order]), slope = 0;
#pragma unroll 1
  for (int n = p.order - 1; n >= 0; --n) {
    slope = slope * x + value;
    value = value * x + A(p.c[n]);
  }
}

template <class A>
__device__ A decay(const PowerDirect& p, int64_t b, int64_t h, int64_t t, int64_t s) {
  if (p.G == nullptr) return 1;
  const int64_t groups = p.H / p.g_group, head = h / p.g_group;
  return A(exp(p.G[(b * p.T + t) * groups + head] - p.G[(b * p.T + s) * groups + head]));
}

// Adds sum_n weight[n] rows[n] to the columns of this thread.
template <class T, class A>
__device__ void add_rows(
    A (&sum)[kMost],
    const A* weight,
    const Rows& x,
    int64_t b,
    int64_t first,
    int count,
    int64_t h,
    int width
) {
#pragma unroll 1
  for (int n = 0; n < count; ++n) {
    const T* from = row<T>(x, b, first + n, h);
    for (int m = 0; m < kMost; ++m) {
      const int c = int(threadIdx.x) + m * kThreads;
      if (c < width) sum[m] += weight[n] * wide<A>(from[c]);
    }
  }
}

template <class T, class A>
__device__ void store(void* to, const A (&sum)[kMost], int64_t at, int width, A factor) {
  for (int m = 0; m < kMost; ++m) {
    const int c = int(threadIdx.x) + m * kThreads;
    if (c < width) static_cast<T*>(to)[at * width + c] = narrow<T>(sum[m] * factor);
  }
}

// do . num / den over a row.
template <class T, class A>
__device__ __forceinline__ A dot_of_row(const T* dO, const A (&num)[kMost], A inverse, int width) {
  A sum = 0;
  for (int m = 0; m < kMost; ++m) {
    const int c = int(threadIdx.x) + m * kThreads;
    if (c < width) sum += wide<A>(dO[c]) * num[m] * inverse;
  }
  return sum;
}

// A block owns token t of one head. A thread first owns one of the tokens s that t sees, then some columns.
template <class T, class A, bool kBackward>
__global__ void __launch_bounds__(kThreads) token_kernel(const __grid_constant__ PowerDirect p) {
  __shared__ A weight[kThreads];
  const int64_t t = blockIdx.x % p.T, bh = blockIdx.x / p.T, b = bh / p.H, h = bh % p.H;
  const int64_t at = (b * p.T + t) * p.H + h;
  const T* q = row<T>(p.q, b, t, h);
  A y[kMost] = {}, den = 0, value, slope;
  for (int64_t first = 0; first <= t; first += kThreads) {
    const int64_t s = first + threadIdx.x;
    const int count = int(min(int64_t(kThreads), t + 1 - first));
    A w = 0;
    if (s <= t) {
      polynomial(p, A(p.scale) * dot<A>(q, row<T>(p.k, b, s, h), p.K), value, slope);
      w = value * decay<A>(p, b, h, t, s);
    }
    __syncthreads();
    weight[threadIdx.x] = w;
    den += w;
    __syncthreads();
    add_rows<T>(y, weight, p.v, b, first, count, h, p.V);  // num_t = sum_s w_ts v_s
  }
  den = block_sum(den);
  const bool held = p.clamps && den < A(p.eps);
  if (held) den = A(p.eps);
  const A inverse = p.normalise ? 1 / den : A(1);
  if constexpr (!kBackward) {
    store<T>(p.o, y, at, p.V, inverse);
    return;
  }
  const T* dO = row<T>(p.dO, b, t, h);
  A delta = dot_of_row(dO, y, inverse, p.V);  // of this thread's columns
  delta = p.normalise && !held ? block_sum(delta) : block_sum(A(0));
  A dq[kMost] = {}, flow = 0;
  for (int64_t first = 0; first <= t; first += kThreads) {
    const int64_t s = first + threadIdx.x;
    const int count = int(min(int64_t(kThreads), t + 1 - first));
    A dx = 0;
    if (s <= t) {
      polynomial(p, A(p.scale) * dot<A>(q, row<T>(p.k, b, s, h), p.K), value, slope);
      const A dw =
          (dot<A>(dO, row<T>(p.v, b, s, h), p.V) - delta) * inverse * decay<A>(p, b, h, t, s);
      dx = A(p.scale) * slope * dw;
      flow += value * dw;
    }
    __syncthreads();
    weight[threadIdx.x] = dx;
    __syncthreads();
    add_rows<T>(dq, weight, p.k, b, first, count, h, p.K);
  }
  store<A>(p.dq, dq, at, p.K, A(1));
  flow = block_sum(flow);
  if (threadIdx.x == 0) {
    static_cast<A*>(p.inverse)[at] = inverse;
    static_cast<A*>(p.delta)[at] = delta;
    static_cast<double*>(p.flow)[at] = double(flow);
  }
}

// A block owns token s of one head. A thread first owns one of the tokens t that see s, then some columns.
template <class T, class A>
__global__ void __launch_bounds__(kThreads) seen_kernel(const __grid_constant__ PowerDirect p) {
  __shared__ A weight[kThreads], slopes[kThreads];
  const int64_t s = blockIdx.x % p.T, bh = blockIdx.x / p.T, b = bh / p.H, h = bh % p.H;
  const int64_t at = (b * p.T + s) * p.H + h;
  A dk[kMost] = {}, dv[kMost] = {}, flow = 0, value, slope;
  for (int64_t first = s; first < p.T; first += kThreads) {
    const int64_t t = first + threadIdx.x;
    const int count = int(min(int64_t(kThreads), p.T - first));
    A w = 0, dx = 0;
    if (t < p.T) {
      polynomial(
          p, A(p.scale) * dot<A>(row<T>(p.q, b, t, h), row<T>(p.k, b, s, h), p.K), value, slope
      );
      const int64_t other = (b * p.T + t) * p.H + h;
      const A factor = static_cast<A*>(p.inverse)[other] * decay<A>(p, b, h, t, s);
      const A dw = dot<A>(row<T>(p.dO, b, t, h), row<T>(p.v, b, s, h), p.V) -
                   static_cast<A*>(p.delta)[other];
      w = value * factor;
      dx = A(p.scale) * slope * dw * factor;
      flow += value * dw * factor;
    }
    __syncthreads();
    weight[threadIdx.x] = w;
    slopes[threadIdx.x] = dx;
    __syncthreads();
    add_rows<T>(dv, weight, p.dO, b, first, count, h, p.V);
    add_rows<T>(dk, slopes, p.q, b, first, count, h, p.K);
  }
  store<A>(p.dk, dk, at, p.K, A(1));
  store<A>(p.dv, dv, at, p.V, A(1));
  flow = block_sum(flow);
  if (threadIdx.x == 0) static_cast<double*>(p.flow)[at] -= double(flow);
}

template <class T, class A>
cudaError_t launch(const PowerDirect& p, cudaStream_t stream) {
  const unsigned blocks = unsigned(p.B * p.H * p.T);
  if (p.dq == nullptr) {
    token_kernel<T, A, false><<<blocks, kThreads, 0, stream>>>(p);
  } else {
    token_kernel<T, A, true><<<blocks, kThreads, 0, stream>>>(p);
    seen_kernel<T, A><<<blocks, kThreads, 0, stream>>>(p);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t power_direct(const PowerDirect& p, cudaStream_t stream) {
  switch (p.type) {
    case Type::f64: return launch<double, double>(p, stream);
    case Type::f32: return launch<float, float>(p, stream);
    case Type::f16: return launch<__half, float>(p, stream);
    case Type::bf16: return launch<__nv_bfloat16, float>(p, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace horner::cuda
