// `delta`, level 1: the definition, token by token. The oracle of the chunked kernels.
//
//   S^ = diag(a_t) S_{t-1}    e = v_t - k_t S^    S_t = S^ + b_t k_t^T e    o_t = scale q_t S_t
// backward, with Z the gradient of S_t:
//   Z += scale q_t^T do_t    dv = b_t k_t Z    db = e.(k_t Z)    dq = scale do_t S_t^T
//   dk = b_t e Z^T - dv S^^T    Z^ = Z - k_t^T dv    dg = <Z^, S^>    Z' = diag(a_t) Z^
// With a decay per key dg is per key: the sum over its row only.
#include "cuda/launch.cuh"
#include "cuda/types.cuh"
#include "ops/delta/delta.cuh"

namespace horner::cuda {
namespace {

constexpr int kLanes = 8;  // lanes that share a column of the state
constexpr int kColumns = kDeltaColumns, kThreads = kLanes * kColumns, kWarps = kThreads / 32;

template <class A>
__device__ A lanes_sum(A x) {  // over the lanes of a column
#pragma unroll
  for (int d = 1; d < kLanes; d *= 2) x += __shfl_xor_sync(~0u, x, d);
  return x;
}
template <class A>
__device__ A columns_sum(A x) {  // over the four columns of a warp
  x += __shfl_xor_sync(~0u, x, 8);
  return x + __shfl_xor_sync(~0u, x, 16);
}

// A block owns kColumns columns of the state of one (b, h). Thread (c, i) owns rows i, i + 8, .. of column c, in
// registers. Shared memory: kTile tokens of all inputs, and the warps' shares of sums over columns.
template <class T, class A, int kSlots, bool kPerKey>
struct Block {
  static constexpr int kRows = kSlots * kLanes, kDecays = kPerKey ? kRows : 1;
  static constexpr int kTile = kPerKey ? 4 : 8;  // tokens between two barriers
  struct Memory {
    A q[kTile][kRows], k[kTile][kRows], v[kTile][kColumns], dout[kTile][kColumns];
    A a[kTile][kDecays], b[kTile];
  };
  struct Sums {
    A dq[kTile][kWarps][kRows], dk[kTile][kWarps][kRows];
    A dg[kTile][kWarps][kDecays], db[kTile][kWarps];
  };

  const DeltaTokens& p;
  Memory& m;
  const int i = threadIdx.x % kLanes, c = threadIdx.x / kLanes;
  const int64_t blocks = (p.V + kColumns - 1) / kColumns;
  const int64_t bh = blockIdx.x / blocks, block = blockIdx.x % blocks;
  const int64_t b = bh / p.H, h = bh % p.H;
  const int column = int(block) * kColumns + c;
  const bool mine = column < p.V;
  A S[kSlots];

  __device__ Block(const DeltaTokens& params, unsigned char* memory)
      : p(params), m(*reinterpret_cast<Memory*>(memory)) {}

  __device__ int64_t token(int64_t t) const { return (b * p.T + t) * p.H + h; }

  __device__ void load_state(A (&X)[kSlots], const void* from) const {
#pragma unroll
    for (int j = 0; j < kSlots; ++j) {
      const int r = i + kLanes * j;
      const bool in = from && mine && r < p.K;
      X[j] = in ? static_cast<const A*>(from)[(bh * p.K + r) * p.V + column] : A(0);
    }
  }
  __device__ void store_state(const A (&X)[kSlots], void* to) const {
#pragma unroll
    for (int j = 0; j < kSlots; ++j) {
      const int r = i + kLanes * j;
      if (to && mine && r < p.K) static_cast<A*>(to)[(bh * p.K + r) * p.V + column] = X[j];
    }
  }
  // Place n of this block in scratch memory, for its registers.
  __device__ A* place(void* scratch, int64_t places, int64_t n) const {
    return static_cast<A*>(scratch) + ((bh * blocks + block) * places + n) * kRows * kColumns +
           threadIdx.x;
  }

  __device__ int load_tile(int64_t start, int64_t end) {
    const int count = int(min(int64_t(kTile), end - start));
    __syncthreads();
    for (int e = threadIdx.x; e < count * kRows; e += kThreads) {
      const int n = e / kRows, r = e % kRows;
      const int64_t at = token(start + n) * p.K + r;
      m.q[n][r] = r < p.K ? wide<A>(static_cast<const T*>(p.q)[at]) : A(0);
      m.k[n][r] = r < p.K ? wide<A>(static_cast<const T*>(p.k)[at]) : A(0);
      if (kPerKey) m.a[n][r] = r < p.K ? exp(static_cast<const A*>(p.g)[at]) : A(1);
    }
    for (int e = threadIdx.x; e < count * kColumns; e += kThreads) {
      const int n = e / kColumns, col = int(block) * kColumns + e % kColumns;
      const int64_t at = token(start + n) * p.V + col;
      const bool in = col < p.V;
      m.v[n][e % kColumns] = in ? wide<A>(static_cast<const T*>(p.v)[at]) : A(0);
      m.dout[n][e % kColumns] = in && p.dout ? wide<A>(static_cast<const T*>(p.dout)[at]) : A(0);
    }
    if (threadIdx.x < count) {
      const int64_t at = token(start + threadIdx.x);
      if (!kPerKey) m.a[threadIdx.x][0] = p.g ? exp(static_cast<const A*>(p.g)[at]) : A(1);
      m.b[threadIdx.x] = static_cast<const A*>(p.beta)[at];
    }
    __syncthreads();
    return count;
  }

  __device__ A decay(int n, int r) const { return m.a[n][kPerKey ? r : 0]; }

  // S_t from S_{t-1}.
  __device__ void advance(int n) {
    A known = 0;
#pragma unroll
    for (int j = 0; j < kSlots; ++j) {
      S[j] *= decay(n, i + kLanes * j);
      known += m.k[n][i + kLanes * j] * S[j];
    }
    const A e = m.v[n][c] - lanes_sum(known);
#pragma unroll
    for (int j = 0; j < kSlots; ++j) S[j] += m.k[n][i + kLanes * j] * (m.b[n] * e);
  }

  __device__ void forward() {
    load_state(S, p.first);
    for (int64_t start = 0; start < p.T; start += kTile) {
      const int count = load_tile(start, p.T);
      for (int n = 0; n < count; ++n) {
        advance(n);
        A y = 0;
#pragma unroll
        for (int j = 0; j < kSlots; ++j) y += m.q[n][i + kLanes * j] * S[j];
        y = lanes_sum(y) * A(p.scale);
        if (i == 0 && mine) static_cast<T*>(p.o)[token(start + n) * p.V + column] = narrow<T>(y);
      }
    }
    store_state(S, p.last);
  }

  // One token back: S is S_{t-1}, Z the gradient of S_t.
  __device__ void retreat(A (&Z)[kSlots], int n, int64_t t, Sums& sums) {
    const A beta = m.b[n], dout = m.dout[n][c] * A(p.scale);
    A known = 0;
#pragma unroll
    for (int j = 0; j < kSlots; ++j) {
      S[j] *= decay(n, i + kLanes * j);
      known += m.k[n][i + kLanes * j] * S[j];
    }
    const A e = m.v[n][c] - lanes_sum(known);
    A kz = 0;
#pragma unroll
    for (int j = 0; j < kSlots; ++j) {
      Z[j] += m.q[n][i + kLanes * j] * dout;
      kz += m.k[n][i + kLanes * j] * Z[j];
    }
    kz = lanes_sum(kz);
    const A dv = beta * kz;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    A dg = 0;
#pragma unroll
    for (int j = 0; j < kSlots; ++j) {
      const int r = i + kLanes * j;
      const A k = m.k[n][r];
      const A dq = columns_sum((S[j] + k * (beta * e)) * dout);
      const A dk = columns_sum(beta * e * Z[j] - S[j] * dv);
      if (lane < kLanes) sums.dq[n][warp][r] = dq, sums.dk[n][warp][r] = dk;
      Z[j] -= k * dv;
      dg = (kPerKey ? A(0) : dg) + Z[j] * S[j];
      if constexpr (kPerKey) {
        dg = columns_sum(dg);
        if (lane < kLanes) sums.dg[n][warp][r] = dg;
      }
      Z[j] *= decay(n, r);
    }
    if (!kPerKey) dg = columns_sum(lanes_sum(dg));
    const A db = columns_sum(e * kz);
    if (lane == 0) sums.db[n][warp] = db;
    if (lane == 0 && !kPerKey) sums.dg[n][warp][0] = dg;
    if (i == 0 && mine) static_cast<A*>(p.dv)[token(t) * p.V + column] = dv;
  }

  __device__ void write_sums(int64_t start, int count, const Sums& sums) const {
    __syncthreads();
    const int64_t offset = block * p.B * p.T * p.H;
    for (int e = threadIdx.x; e < count * kRows; e += kThreads) {
      const int n = e / kRows, r = e % kRows;
      if (r >= p.K) continue;
      A dq = 0, dk = 0;
      for (int w = 0; w < kWarps; ++w) dq += sums.dq[n][w][r], dk += sums.dk[n][w][r];
      const int64_t at = (offset + token(start + n)) * p.K + r;
      static_cast<A*>(p.dq)[at] = dq;
      static_cast<A*>(p.dk)[at] = dk;
      if constexpr (kPerKey) {
        A dg = 0;
        for (int w = 0; w < kWarps; ++w) dg += sums.dg[n][w][r];
        if (p.dg) static_cast<A*>(p.dg)[at] = dg;
      }
    }
    if (threadIdx.x < count) {
      A dg = 0, db = 0;
      for (int w = 0; w < kWarps; ++w)
        dg += sums.dg[threadIdx.x][w][0], db += sums.db[threadIdx.x][w];
      const int64_t at = offset + token(start + threadIdx.x);
      if (p.dg && !kPerKey) static_cast<A*>(p.dg)[at] = dg;
      static_cast<A*>(p.dbeta)[at] = db;
    }
  }

  __device__ void backward(Sums& sums) {
    const int64_t segments = (p.T + kDeltaSegment - 1) / kDeltaSegment;
    load_state(S, p.first);
    for (int64_t s = 0; s < segments; ++s) {
      A* to = place(p.starts, segments, s);
#pragma unroll
      for (int j = 0; j < kSlots; ++j) to[j * kThreads] = S[j];
      const int64_t end = (s + 1) * kDeltaSegment;
      for (int64_t start = s * kDeltaSegment; start < end && end < p.T; start += kTile) {
        const int count = load_tile(start, end);
        for (int n = 0; n < count; ++n) advance(n);
      }
    }
    A Z[kSlots];
    load_state(Z, p.dlast);
    for (int64_t s = segments - 1; s >= 0; --s) {
      const int64_t first = s * kDeltaSegment, end = min(p.T, first + kDeltaSegment);
      const A* from = place(p.starts, segments, s);
#pragma unroll
      for (int j = 0; j < kSlots; ++j) S[j] = from[j * kThreads];
      for (int64_t start = first; start < end; start += kTile) {
        const int count = load_tile(start, end);
        for (int n = 0; n < count; ++n) {
          A* to = place(p.inside, kDeltaSegment, start - first + n);
#pragma unroll
          for (int j = 0; j < kSlots; ++j) to[j * kThreads] = S[j];
          advance(n);
        }
      }
      for (int64_t start = first + (end - 1 - first) / kTile * kTile; start >= first;
           start -= kTile) {
        const int count = load_tile(start, end);
        for (int n = count - 1; n >= 0; --n) {
          const A* before = place(p.inside, kDeltaSegment, start - first + n);
#pragma unroll
          for (int j = 0; j < kSlots; ++j) S[j] = before[j * kThreads];
          retreat(Z, n, start + n, sums);
        }
        write_sums(start, count, sums);
      }
    }
    store_state(Z, p.dfirst);
  }
};

template <class T, class A, int kSlots, bool kPerKey>
__global__ void __launch_bounds__(kThreads, 1)
    forward_kernel(const __grid_constant__ DeltaTokens p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Block<T, A, kSlots, kPerKey>(p, memory).forward();
}

template <class T, class A, int kSlots, bool kPerKey>
__global__ void __launch_bounds__(kThreads, 1)
    backward_kernel(const __grid_constant__ DeltaTokens p) {
  HORNER_DYNAMIC_MEMORY(memory);
  using Own = Block<T, A, kSlots, kPerKey>;
  Own(p, memory).backward(
      *reinterpret_cast<typename Own::Sums*>(memory + sizeof(typename Own::Memory))
  );
}

template <class T, class A, int kSlots, bool kPerKey>
cudaError_t run(const DeltaTokens& p, bool backward, cudaStream_t stream) {
  using Own = Block<T, A, kSlots, kPerKey>;
  const int64_t blocks = p.B * p.H * delta_blocks(p.V);
  const size_t bytes = sizeof(typename Own::Memory);
  if (!backward)
    return launch(forward_kernel<T, A, kSlots, kPerKey>, blocks, kThreads, bytes, stream, p);
  return launch(
      backward_kernel<T, A, kSlots, kPerKey>,
      blocks,
      kThreads,
      bytes + sizeof(typename Own::Sums),
      stream,
      p
  );
}

template <class T, class A, bool kPerKey>
cudaError_t run(const DeltaTokens& p, bool backward, cudaStream_t stream) {
  if (p.K <= 64) return run<T, A, 8, kPerKey>(p, backward, stream);
  if (p.K <= 128) return run<T, A, 16, kPerKey>(p, backward, stream);
  if constexpr (sizeof(A) == 4) return run<T, A, 32, kPerKey>(p, backward, stream);
  return cudaErrorInvalidValue;
}

template <class T, class A>
cudaError_t run(const DeltaTokens& p, bool backward, cudaStream_t stream) {
  return p.per_key ? run<T, A, true>(p, backward, stream) : run<T, A, false>(p, backward, stream);
}

cudaError_t run(const DeltaTokens& p, bool backward, cudaStream_t stream) {
  switch (p.type) {
    case Type::f64: return run<double, double>(p, backward, stream);
    case Type::f32: return run<float, float>(p, backward, stream);
    case Type::f16: return run<__half, float>(p, backward, stream);
    case Type::bf16: return run<__nv_bfloat16, float>(p, backward, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t delta_recurrent(const DeltaTokens& p, cudaStream_t stream) {
  return run(p, false, stream);
}

cudaError_t delta_recurrent_backward(const DeltaTokens& p, cudaStream_t stream) {
  return run(p, true, stream);
}

}  // namespace horner::cuda
