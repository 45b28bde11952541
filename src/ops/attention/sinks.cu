// Adds the sinks of a window to the result of flash attention over the window. And attention_shift:
// the gradient of the log-normaliser for a backward that does not take one.
//
//   forward    x_s = scale q.k_s     n' = log(e^n + sum_s e^{x_s})     o' = e^{n-n'} o + sum_s e^{x_s-n'} v_s
//   backward   p_s = e^{x_s - n'}    dx_s = p_s (do.v_s - do.o' + dn)  dq += scale dx_s k_s   dk_s += scale dx_s q   dv_s += p_s do
//
// A block owns kSinkRows rows t of one (b, query head). L neighbouring lanes own one row at a time,
// 8 columns each. A row is read once and written once. The bandwidth needs more bytes in flight than
// registers hold, so rows load into shared memory.
#include "cuda/launch.cuh"
#include "cuda/sm90.cuh"
#include "ops/attention/attention.cuh"
#include "ops/attention/vectors.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 128, kMost = kSinksAtOnce;

template <class T>
__device__ T* row_at(const Strided& x, int64_t b, int64_t t, int64_t h, int column) {
  return static_cast<T*>(x.data) + b * x.b + t * x.t + h * x.h + column;
}
template <class T>
__device__ uint4 load(const T* x) {
  return *reinterpret_cast<const uint4*>(x);
}
template <class T>
__device__ void store(T* x, const float (&y)[8]) {
  *reinterpret_cast<uint4*>(x) = pack(y, T());
}

// The rows of a block, and its sinks: keys and then values, in shared memory.
template <class T, int L>
struct Place {
  int lane, group, h, g, column, rows, sinks;  // the first row of the block reads `sinks` of these
  int64_t b, start;                            // of the first row, in tensors (B,T,H,K)
  int64_t sequence, first_token, tokens;       // of its sequence: number, first token, length
  bool inside;
  uint32_t own;  // address of the lane's columns of the first key
  static constexpr int kSinkBytes = 2 * kMost * L * 16;

  __device__ explicit Place(const AttentionSinks& p) {
    lane = int(threadIdx.x) % L, group = int(threadIdx.x) / L, column = 8 * lane;
    inside = column < p.K;
    if (p.starts) {
      find_packed(p);
    } else {
      const unsigned blocks = unsigned(p.row_blocks()), at = blockIdx.x / blocks;
      b = at / unsigned(p.H),
      h = int(at % unsigned(p.H));  // a 64-bit division costs 100 instructions
      start = int64_t(blockIdx.x % blocks) * kSinkRows;
      sequence = b, first_token = 0, tokens = p.T;
    }
    g = h / (p.H / p.G);
    const int64_t before = start - first_token;
    rows = int(max(int64_t(0), min(tokens - before, int64_t(kSinkRows))));
    const int64_t seen = p.seen ? p.seen[sequence * p.G + g] : 0;
    const int64_t all = seen + before - p.window + 1 - p.first;
    sinks = int(max(int64_t(-2 * kSinkRows), min(int64_t(kMost), all)));
  }
  __device__ void find_packed(const AttentionSinks& p) {
    const unsigned blocks = unsigned(p.blocks());
    const int slot = int(blockIdx.x % blocks);
    b = 0, h = int(blockIdx.x / blocks);
    int low = 0, high = int(p.sequences);  // the last sequence whose first slot is <= slot
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (p.starts[middle] / kSinkRows + middle <= slot ? low : high) = middle;
    }
    sequence = low, first_token = p.starts[low], tokens = p.starts[low + 1] - first_token;
    start = first_token + (slot - first_token / kSinkRows - low) * kSinkRows;
  }
  // Whether a row of the block reads a sink.
  __device__ bool any() const { return rows > 0 && sinks + rows > 1; }
  // How many of these sinks a row of the block reads.
  __device__ int visible(const AttentionSinks& p, int row) const {
    return row < rows ? max(0, min(p.count, sinks + row)) : 0;
  }
  __device__ void load_sinks(const AttentionSinks& p, unsigned char* memory) {
    own = shared_address(memory) + lane * 16;
    const int64_t row = p.in_tokens ? b : sequence, slots = p.in_tokens ? tokens : p.N;
    const int64_t before = p.in_tokens ? first_token : 0;
    for (int s = group; s < 2 * kMost; s += kThreads / L) {
      const int64_t slot = p.first + s % kMost;
      const bool valid = inside && s % kMost < p.count && slot < slots;
      const Strided& x = s < kMost ? p.keys : p.values;
      copy_async(
          own + s * L * 16, row_at<T>(x, row, before + (valid ? slot : 0), g, column), valid
      );
    }
    copy_commit();
  }
  __device__ uint4 key(int s) const { return load_shared(own + s * L * 16); }
  __device__ uint4 value(int s) const { return load_shared(own + (kMost + s) * L * 16); }
};

// The rows of one lane of M tensors, kSlots of them in shared memory: one group of copies per row.
// A thread reads only what it has copied, so no thread waits for another.
template <class T, int L, int M, int kSlots>
struct Ring {
  static constexpr int kStep = kThreads / L;
  static constexpr uint32_t kRow = M * kThreads * 16, kBytes = kSlots * kRow;
  T* from[M];
  int64_t step[M];
  uint32_t own, read = 0, write = 0;  // addresses in shared memory
  int row;                            // that is copied next

  __device__ Ring(
      const Place<T, L>& at, const Strided* const (&x)[M], unsigned char* memory, int ahead
  ) {
    own = shared_address(memory) + threadIdx.x * 16, row = at.group;
#pragma unroll
    for (int i = 0; i < M; ++i) {
      from[i] = row_at<T>(*x[i], at.b, at.start + at.group, at.h, at.column);
      step[i] = x[i]->t * kStep;
    }
    for (int i = 0; i < ahead; ++i) copy(at);
  }
  __device__ static void advance(uint32_t& slot) { slot = slot + kRow == kBytes ? 0 : slot + kRow; }
  __device__ void copy(const Place<T, L>& at) {
#pragma unroll
    for (int i = 0; i < M; ++i) {
      copy_async(own + write + i * kThreads * 16, from[i], at.inside && row < at.rows);
      from[i] += step[i];
    }
    copy_commit();
    row += kStep;
    advance(write);
  }
  // The row of tensor i that was copied kSlots rows ago.
  __device__ T* behind(int i) const { return from[i] - kSlots * step[i]; }
  __device__ uint4 get(int i) const { return load_shared(own + read + i * kThreads * 16); }
};

// The numbers of the block's rows, t apart; 0 past its end.
__device__ void load_numbers(float* to, const float* from, int64_t t, int rows) {
  for (int row = int(threadIdx.x); row < kSinkRows; row += kThreads)
    to[row] = row < rows ? from[row * t] : 0.f;
}

__device__ float add_dot(const float (&x)[8], const float (&y)[8], float sum) {
#pragma unroll
  for (int e = 0; e < 8; ++e) sum += x[e] * y[e];
  return sum;
}

// Adds the sinks to two rows at once. First a lane has its columns of all products q.k; then it has
// the one of row u and sink s, and their weight.
template <class T, int L>
struct Forward {
  static constexpr int U = 2, kSlots = 6;
  static_assert(U * kMost == 8);
  using Rows = Ring<T, L, 2, kSlots>;
  static constexpr size_t kBytes =
      Rows::kBytes + Place<T, L>::kSinkBytes + kSinkRows * sizeof(float);
  float x, most, sum, own, o[U][8];

  __device__ void score(const AttentionSinks& p, const Place<T, L>& at, const uint4 (&packed)[U]) {
    float q[U][8], products[8];
#pragma unroll
    for (int u = 0; u < U; ++u) unpack(packed[u], q[u], T());
#pragma unroll
    for (int s = 0; s < kMost; ++s) {
      float k[8];
      unpack(at.key(s), k, T());
#pragma unroll
      for (int u = 0; u < U; ++u) products[u * kMost + s] = add_dot(k, q[u], 0.f);
    }
    x = p.scale * lane_sums<L>(products);
  }
  // Turns scores into weights. `norm`: of the row before.
  __device__ void weigh(bool visible, float norm) {
    most = visible ? fmaxf(norm, x) : norm;
#pragma unroll
    for (int d = L / 4; d >= L / 8; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    x = visible ? __expf(x - most) : 0.f;
    sum = x;
#pragma unroll
    for (int d = L / 4; d >= L / 8; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    own = __expf(norm - most);
    sum += own;
    const float inverse = __fdividef(1.f, sum);
    own *= inverse;
    x *= inverse;
  }
  __device__ void add(const Place<T, L>& at, const uint4 (&packed)[U]) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      unpack(packed[u], o[u], T());
      const float weight = from_number<L>(own, u * kMost);
#pragma unroll
      for (int e = 0; e < 8; ++e) o[u][e] *= weight;
    }
#pragma unroll
    for (int s = 0; s < kMost; ++s) {
      float v[8];
      unpack(at.value(s), v, T());
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const float weight = from_number<L>(x, u * kMost + s);
#pragma unroll
        for (int e = 0; e < 8; ++e) o[u][e] += weight * v[e];
      }
    }
  }
};

template <class T, int L>
__global__ void __launch_bounds__(kThreads, 6)
    forward_kernel(const __grid_constant__ AttentionSinks p) {
  using Own = Forward<T, L>;
  constexpr int U = Own::U, kStep = Own::Rows::kStep;
  HORNER_DYNAMIC_MEMORY(memory);
  unsigned char* sinks = memory + Own::Rows::kBytes;
  float* norms = reinterpret_cast<float*>(sinks + Place<T, L>::kSinkBytes);
  Place<T, L> at(p);
  if (!at.any()) return;
  at.load_sinks(p, sinks);
  const Strided* const from[] = {&p.q, &p.o};
  typename Own::Rows ring(at, from, memory, Own::kSlots - U);
  float* norm = p.norm + (at.b * p.H + at.h) * p.T + at.start;
  load_numbers(norms, norm, 1, at.rows);
  T* to = row_at<T>(p.o, at.b, at.start + at.group, at.h, at.column);
  copy_wait<Own::kSlots - U>();
  __syncthreads();
  for (int first = at.group; first - at.group < at.rows; first += U * kStep) {
    copy_wait<Own::kSlots - 2 * U>();
    uint4 q[U], o[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      q[u] = ring.get(0), o[u] = ring.get(1);
      Own::Rows::advance(ring.read);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) ring.copy(at);
    Own own;
    own.score(p, at, q);
    const int row = first + at.lane / (L / U) * kStep, number = at.lane / (L / 8);
    const int n = at.visible(p, row);
    own.weigh(number % kMost < n, norms[row]);
    own.add(at, o);
    if (at.lane % (L / U) == 0 && n > 0) norm[row] = own.most + logf(own.sum);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (at.visible(p, first + u * kStep) > 0 && at.inside) store(to, own.o[u]);
      to += p.o.t * kStep;
    }
  }
}

// Sums of the gradients of the sinks over the rows of a lane.
struct SinkGradients {
  float k[kMost][8] = {}, v[kMost][8] = {};

  // Sums over the lanes of equal columns, in a fixed order, and writes them to p.partial.
  // `memory`: a float per thread and column.
  template <class T, int L>
  __device__ void write(const AttentionSinks& p, const Place<T, L>& at, float* memory) {
    const int64_t row = int64_t(blockIdx.x) * p.N + p.first;
#pragma unroll
    for (int s = 0; s < kMost; ++s) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        __syncthreads();
#pragma unroll
        for (int e = 0; e < 8; ++e)
          memory[at.group * (8 * L) + e * L + at.lane] = (part == 0 ? k : v)[s][e];
        __syncthreads();
        float* to = p.partial + (part * p.H * p.blocks() * p.N + row + s) * p.K;
        for (int i = int(threadIdx.x); i < 8 * L; i += kThreads) {
          float sum = 0.f;
#pragma unroll
          for (int j = 0; j < kThreads / L; ++j) sum += memory[j * (8 * L) + i];
          const int column = i % L * 8 + i / L;
          if (column < p.K && s < p.count) to[column] = sum;
        }
      }
    }
  }
};

template <class T, int L>
struct Backward {
  static constexpr int kSlots = 4;
  using Rows = Ring<T, L, 4, kSlots>;
  static constexpr size_t kBytes =
      Rows::kBytes + Place<T, L>::kSinkBytes + 2 * kSinkRows * sizeof(float);
  SinkGradients d;
  float mixed;

  __device__ void rows(const AttentionSinks& p, Place<T, L>& at, unsigned char* memory) {
    unsigned char* sinks = memory + Rows::kBytes;
    float *norms = reinterpret_cast<float*>(sinks + Place<T, L>::kSinkBytes),
          *dnorms = norms + kSinkRows;
    at.load_sinks(p, sinks);
    const Strided* const from[] = {&p.q, &p.grad, &p.o, &p.dq};
    Rows ring(at, from, memory, kSlots - 1);
    load_numbers(norms, p.norm + (at.b * p.H + at.h) * p.T + at.start, 1, at.rows);
    const float* dnorm = p.dnorm + (at.b * p.T + at.start) * p.H + at.h;
    load_numbers(dnorms, dnorm, p.H, p.dnorm ? at.rows : 0);
    copy_wait<kSlots - 1>();
    __syncthreads();
    constexpr int kAhead = (kSlots - 1) * Rows::kStep;
    while (ring.row - at.group < at.rows + kAhead) {
      const int row = ring.row - kAhead;
      copy_wait<kSlots - 2>();
      ring.copy(at);
      const int n = at.visible(p, row);
      float q[8], grad[8], dq[8];
      weigh(p, at, ring, n, norms[row], dnorms[row], q, grad);
      unpack(ring.get(3), dq, T());
      Rows::advance(ring.read);
      add(at, q, grad, dq);
      if (n > 0 && at.inside) store(ring.behind(3), dq);
    }
    copy_wait<0>();
  }
  // One row, which reads n sinks. Sets `mixed`: of sink s, lanes of number s have the weight, those
  // of number kMost + s have scale dx.
  __device__ void weigh(
      const AttentionSinks& p,
      const Place<T, L>& at,
      const Rows& ring,
      int n,
      float norm,
      float dnorm,
      float (&q)[8],
      float (&grad)[8]
  ) {
    float products[8], y[8];  // q.k of all sinks, and do.v - do.o
    unpack(ring.get(0), q, T());
#pragma unroll
    for (int s = 0; s < kMost; ++s) {
      unpack(at.key(s), y, T());
      products[s] = add_dot(y, q, 0.f);
    }
    unpack(ring.get(1), grad, T());
    unpack(ring.get(2), y, T());
    const float delta = add_dot(y, grad, 0.f);
#pragma unroll
    for (int s = 0; s < kMost; ++s) {
      unpack(at.value(s), y, T());
      products[kMost + s] = add_dot(y, grad, -delta);
    }
    const float own = lane_sums<L>(products), other = __shfl_xor_sync(~0u, own, L / 2);
    const int number = at.lane / (L / 8);
    const bool upper = number >= kMost;
    const float x = p.scale * (upper ? other : own);
    const float weight = number % kMost < n ? __expf(x - norm) : 0.f;
    mixed = upper ? p.scale * weight * (own + dnorm) : weight;
  }
  __device__ void add(
      const Place<T, L>& at, const float (&q)[8], const float (&grad)[8], float (&dq)[8]
  ) {
#pragma unroll
    for (int s = 0; s < kMost; ++s) {
      const float weight = from_number<L>(mixed, s), dx = from_number<L>(mixed, kMost + s);
      float k[8];
      unpack(at.key(s), k, T());
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        dq[e] += dx * k[e];
        d.k[s][e] += dx * q[e];
        d.v[s][e] += weight * grad[e];
      }
    }
  }
};

template <class T, int L>
__global__ void __launch_bounds__(kThreads, 4)
    backward_kernel(const __grid_constant__ AttentionSinks p) {
  HORNER_DYNAMIC_MEMORY(memory);
  Place<T, L> at(p);
  Backward<T, L> own;
  if (at.any()) own.rows(p, at, memory);
  own.d.write(p, at, reinterpret_cast<float*>(memory));
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

// The two columns of largest |do| of a row that L lanes own.
template <int L, class F>
__device__ __forceinline__ void find_largest(
    Largest& first, Largest& second, int lane, int width, F&& load_row
) {
  for (int column = 8 * lane; column < width; column += 8 * L) {
    float grad[8];
    load_row(column, grad);
#pragma unroll
    for (int e = 0; e < 8; ++e) insert({fabsf(grad[e]), column + e}, first, second);
  }
#pragma unroll
  for (int d = L / 2; d > 0; d /= 2) {
    const Largest a = from_lane(first, d), other = from_lane(second, d);
    insert(a, first, second);
    insert(other, first, second);
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
  find_largest<L>(first, second, lane, p.V, [&](int column, float(&grad)[8]) {
    unpack(load(row_at<T>(p.grad, b, t, h, column)), grad, T());
  });
  const bool none = !(first.size >= kLeast);
  if (none) first = {kLeast, 0}, second = {0.f, 1};
  const float unit = first.size;  // squares of do / unit neither vanish nor overflow
  const auto load_grad = [&](int column, float(&grad)[8]) {
    unpack(load(row_at<T>(p.grad, b, t, h, column)), grad, T());
    if (none && column == 0) grad[0] = kLeast;
  };
  float square = 0.f;
  for (int column = 8 * lane; column < p.V; column += 8 * L) {
    float grad[8];
    load_grad(column, grad);
#pragma unroll
    for (int e = 0; e < 8; ++e) square += grad[e] / unit * (grad[e] / unit);
  }
  square = lane_sum<L>(square);
  const float factor = p.dnorm[row] / (unit * square);    // dn do' / |do'|^2 = factor do' / unit
  float rest = 0.f, grad_first = 0.f, grad_second = 0.f;  // <do', o> - dn minus what is written
  for (int column = 8 * lane; column < p.V; column += 8 * L) {
    float grad[8], o[8];
    load_grad(column, grad);
    unpack(load(row_at<T>(p.o, b, t, h, column)), o, T());
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
      store(static_cast<T*>(p.moved_o) + row * p.V + column, o);
      store(static_cast<T*>(p.moved_grad) + row * p.V + column, grad);
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
  T* const to = static_cast<T*>(p.moved_o) + row * p.V;
  to[first.column] = one, to[second.column] = two;
}

template <class T, int L>
cudaError_t run_width(const AttentionSinks& p, bool backward, cudaStream_t stream) {
  const int64_t blocks = p.H * p.blocks();
  return backward
             ? launch(backward_kernel<T, L>, blocks, kThreads, Backward<T, L>::kBytes, stream, p)
             : launch(forward_kernel<T, L>, blocks, kThreads, Forward<T, L>::kBytes, stream, p);
}

template <class T>
cudaError_t run(const AttentionSinks& p, bool backward, cudaStream_t stream) {
  return p.K <= 64    ? run_width<T, 8>(p, backward, stream)
         : p.K <= 128 ? run_width<T, 16>(p, backward, stream)
                      : run_width<T, 32>(p, backward, stream);
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
