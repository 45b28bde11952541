// `linear`, level 1: the definition, token by token. The oracle of the faster kernels.
#include <algorithm>
#include <type_traits>

#include "cuda/types.cuh"
#include "ops/linear/linear.cuh"

namespace horner::cuda {
namespace {

constexpr int kColumns = 64;  // columns of the state that a block owns
constexpr int kSlice = 32;    // rows of one column that a thread owns
constexpr int kTile = 8;      // tokens between two barriers

template <class T>
__device__ T* row(const Rows& x, int64_t b, int64_t t, int64_t h) {
  return static_cast<T*>(x.data) + b * x.b + t * x.t + (h / x.group) * x.h;
}

// A block owns kColumns columns of the state of one (b, h); thread (c, i) owns rows kSlice i .. of column c,
// in registers. Shared memory holds kTile tokens of q, k, v and decays, and the share of each thread in y.
template <class T, class A>
struct Recurrence {
  const Sweep& p;
  const int slices = blockDim.y, rows = slices * kSlice;
  A *q, *k, *a, *v, *part;
  const int64_t b = blockIdx.x / p.H, h = blockIdx.x % p.H;
  const int first_column = blockIdx.y * kColumns, c = threadIdx.x, i = threadIdx.y;
  const int thread = i * kColumns + c, threads = slices * kColumns, column = first_column + c;
  const A scale = A(p.scale);

  __device__ Recurrence(const Sweep& sweep, unsigned char* memory) : p(sweep) {
    q = reinterpret_cast<A*>(memory);     // (kTile, rows)
    k = q + kTile * rows;                 // (kTile, rows)
    a = k + kTile * rows;                 // (kTile, max(rows, kColumns)): decays before the token
    v = a + kTile * max(rows, kColumns);  // (kTile, kColumns)
    part = v + kTile * kColumns;  // (2, kTile, slices, kColumns): y from the state; all of y
  }

  // The time of the n-th token that the sweep reads.
  __device__ int64_t time(int64_t n) const { return p.reverse ? p.T - 1 - n : n; }
  __device__ A& element(const StateView& s, int r) const {
    return static_cast<A*>(s.data)[b * s.b + (h / s.group) * s.h + r * s.r + column * s.n];
  }

  __device__ void load_state(A (&S)[kSlice]) const {
#pragma unroll
    for (int j = 0; j < kSlice; ++j) {
      const int r = i * kSlice + j;
      S[j] = 0;
      const bool own = !p.reverse || h % p.first.group == 0;  // the gradient counts once per state
      if (p.first.data && own && r < p.R && column < p.N) {
        S[j] = element(p.first, r);
        if (p.reverse) S[j] /= scale;
      }
    }
  }

  __device__ void load_tokens(int64_t start, int count) const {
    for (int e = thread; e < count * rows; e += threads) {
      const int r = e % rows;
      const int64_t t = time(start + e / rows);
      const bool in = r < p.R;
      q[e] = in ? wide<A>(row<T>(p.q, b, t, h)[r]) : A(0);
      k[e] = in ? wide<A>(row<T>(p.k, b, t, h)[r]) : A(0);
    }
    for (int e = thread; e < count * kColumns; e += threads) {
      const int n = first_column + e % kColumns;
      v[e] = n < p.N ? wide<A>(row<T>(p.v, b, time(start + e / kColumns), h)[n]) : A(0);
    }
    if (p.decay == Decay::none) return;
    const int width = p.decay == Decay::rows ? rows : p.decay == Decay::head ? 1 : kColumns;
    const int limit = p.decay == Decay::rows ? p.R : p.decay == Decay::head ? 1 : p.N;
    const int offset = p.decay == Decay::columns ? first_column : 0;
    for (int e = thread; e < count * width; e += threads) {  // a_t forward, a_{t+1} in reverse
      const int64_t t = time(start + e / width) + (p.reverse ? 1 : 0);
      const int n = offset + e % width;
      a[e] = n < limit && t < p.T ? exp(row<A>(p.g, b, t, h)[n]) : A(1);
    }
  }

  // Token n of the tile.
  __device__ void step(A (&S)[kSlice], int n) const {
    A from_state = 0, all = 0;
    const A vn = v[n * kColumns + c];
    A decay = 1;
    if (p.decay == Decay::head) decay = a[n];
    if (p.decay == Decay::columns) decay = a[n * kColumns + c];
#pragma unroll
    for (int j = 0; j < kSlice; ++j) {
      const int r = n * rows + i * kSlice + j;
      if (p.decay == Decay::rows) decay = a[r];
      const A kept = decay * S[j];
      S[j] = kept + k[r] * vn;  // S_t = a_t S_{t-1} + k_t^T v_t
      from_state += q[r] * kept;
      all += q[r] * S[j];  // y_t = q_t S_t
    }
    const int e = (n * slices + i) * kColumns + c;
    part[e] = from_state;
    part[kTile * slices * kColumns + e] = all;
  }

  __device__ void store_y(int64_t start, int count) const {
    for (int e = thread; e < count * kColumns; e += threads) {
      const int n = e / kColumns, col = first_column + e % kColumns;
      if (col >= p.N) continue;
      const int64_t t = time(start + n);
      A from_state = 0, all = 0;
      for (int s = 0; s < slices; ++s) {
        const int at = (n * slices + s) * kColumns + e % kColumns;
        from_state += part[at];
        all += part[kTile * slices * kColumns + at];
      }
      if (p.wide_y) {
        row<A>(p.y, b, t, h)[col] = scale * all;
      } else {
        row<T>(p.y, b, t, h)[col] = narrow<T>(scale * all);
      }
      if (p.flow.data) {
        row<A>(p.flow, b, t, h)[col] = scale * from_state * wide<A>(row<T>(p.x, b, t, h)[col]);
      }
    }
  }

  __device__ void store_state(const A (&S)[kSlice]) const {
    if (!p.last.data || h % p.last.group != 0) return;
#pragma unroll
    for (int j = 0; j < kSlice; ++j) {
      const int r = i * kSlice + j;
      if (r >= p.R || column >= p.N) continue;
      A value = S[j];
      if (p.reverse) {  // dS_0 = a_1 Z_1
        const A* g = p.decay == Decay::none ? nullptr : row<A>(p.g, b, 0, h);
        if (p.decay == Decay::head) value *= exp(g[0]);
        if (p.decay == Decay::rows) value *= exp(g[r]);
        if (p.decay == Decay::columns) value *= exp(g[column]);
        value *= scale;
      }
      element(p.last, r) = value;
    }
  }
};

template <class T, class A>
__global__ void recurrent_kernel(const Sweep p) {
  extern __shared__ __align__(16) unsigned char memory[];
  const Recurrence<T, A> x(p, memory);
  A S[kSlice];
  x.load_state(S);
  for (int64_t start = 0; start < p.T; start += kTile) {
    const int count = int(min(int64_t(kTile), p.T - start));
    x.load_tokens(start, count);
    __syncthreads();
    for (int n = 0; n < count; ++n) x.step(S, n);
    __syncthreads();
    x.store_y(start, count);
  }
  x.store_state(S);
}

template <class T, class A>
cudaError_t launch(const Sweep& p, cudaStream_t stream) {
  const int slices = (p.R + kSlice - 1) / kSlice, rows = slices * kSlice;
  const size_t bytes =
      sizeof(A) * kTile * (2 * rows + std::max(rows, kColumns) + kColumns + 2 * slices * kColumns);
  if (bytes > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(
        recurrent_kernel<T, A>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)
    );
    if (error != cudaSuccess) return error;
  }
  const dim3 grid(unsigned(p.B * p.H), unsigned((p.N + kColumns - 1) / kColumns));
  recurrent_kernel<T, A><<<grid, dim3(kColumns, slices), bytes, stream>>>(p);
  return cudaGetLastError();
}

// A thread owns one channel of one batch row and walks back in time.
template <class A>
__global__ void gate_kernel(const GateGradient p) {
  const int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= p.B * p.C) return;
  const int64_t b = n / p.C, c = n % p.C;
  const A* rho = static_cast<const A*>(p.rho) + b * p.T * p.C + c;
  const A* kappa = static_cast<const A*>(p.kappa) + b * p.T * p.C + c;
  const A* g = static_cast<const A*>(p.g) + b * p.T * p.C + c;
  A* dg = static_cast<A*>(p.dg) + b * p.T * p.C + c;
  double X = p.X ? double(static_cast<const A*>(p.X)[n]) : 0.0;
  for (int64_t t = p.T - 1; t >= 0; --t) {
    const bool through = exp(double(g[t * p.C])) >= 0x1p-20 && (t > 0 || p.carried);
    const double pi = through ? X - double(kappa[t * p.C]) : 0.0;
    X = pi + double(rho[t * p.C]);
    dg[t * p.C] = A(X);
  }
}

}  // namespace

cudaError_t recurrent_sweep(const Sweep& p, cudaStream_t stream) {
  switch (p.type) {
    case Type::f64: return launch<double, double>(p, stream);
    case Type::f32: return launch<float, float>(p, stream);
    case Type::f16: return launch<__half, float>(p, stream);
    case Type::bf16: return launch<__nv_bfloat16, float>(p, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t recurrent_gate(const GateGradient& p, cudaStream_t stream) {
  const unsigned blocks = unsigned((p.B * p.C + 127) / 128);
  if (p.type == Type::f64) {
    gate_kernel<double><<<blocks, 128, 0, stream>>>(p);
  } else {
    gate_kernel<float><<<blocks, 128, 0, stream>>>(p);
  }
  return cudaGetLastError();
}

}  // namespace horner::cuda
