// A block makes one example. Its threads compute the random words and the waiting times of the race together; one thread swaps,
// because each swap needs the one before. The list that is drawn from, what was drawn and the times live in shared memory.
#include "tasks/recall/on_gpu.cuh"

#include "cuda/philox.cuh"

namespace horner::cuda {
namespace {

constexpr int kThreads = 128;
constexpr uint32_t kContent = 0, kNoise = 1;  // Stream of core/random.h

struct Shared {
  double* wait;                       // (spaces)
  int* list;                          // (ids)
  int *a, *b, *values, *order, *gap;  // what was drawn, up to P + R each
};

// Random::distinct: m of 0 .. n-1, from the words first .. first + m-1.
__device__ void distinct(const Philox& random, int first, int n, int m, int* list, int* drawn) {
  __syncthreads();  // the list of the draw before is no longer read
  for (int i = threadIdx.x; i < n; i += kThreads) list[i] = i;
  for (int i = threadIdx.x; i < m; i += kThreads)
    drawn[i] = i + int(random.integer(uint32_t(first + i), uint32_t(n - i)));
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < m; ++i) {
      const int j = drawn[i], number = list[j];
      list[j] = list[i];
      drawn[i] = number;
    }
  }
  __syncthreads();
}

// Random::race: the m places with the smallest -ln u / w, in increasing order of it.
__device__ void race(const Philox& random, int first, const Recall& p, double* wait, int* drawn) {
  for (int i = threadIdx.x; i < p.spaces; i += kThreads)
    wait[i] = -log(random.uniform(uint32_t(first + i))) / p.weights[i];
  __syncthreads();
  for (int i = threadIdx.x; i < p.spaces; i += kThreads) {
    const double own = wait[i];
    int before = 0;
    for (int j = 0; j < p.spaces; ++j) before += wait[j] < own || (wait[j] == own && j < i);
    if (before < p.P) drawn[before] = i;
  }
  __syncthreads();
}

// The question about pair j is at place `at`; places are written in increasing order.
__device__ void answer(const Recall& p, const Shared& s, int64_t row, int j, int at, int value) {
  int before = 0;
  for (int i = 0; i < p.P; ++i) before += s.gap[i] < s.gap[j];
  p.places[row * p.P + before] = row * p.T + at;
  p.answers[row * p.P + before] = value;
}

__device__ void mqar(const Recall& p, const Shared& s, const Philox& random, int64_t row) {
  const int half = p.N / 2, P = p.P;
  int64_t* tokens = p.tokens + row * p.T;
  distinct(random, 0, half - 1, P, s.list, s.a);
  distinct(random, P, half, P, s.list, s.values);
  race(random, 2 * P, p, s.wait, s.gap);
  for (int j = threadIdx.x; j < P; j += kThreads) {
    const int at = 2 * P + 2 * s.gap[j];
    tokens[2 * j] = 1 + s.a[j];
    tokens[2 * j + 1] = half + s.values[j];
    tokens[at] = 1 + s.a[j];
    answer(p, s, row, j, at, half + s.values[j]);
  }
  if (!p.noise) return;
  const Philox noise{random.seed, random.index, p.split * 65536 + kNoise};
  for (int t = 2 * P + threadIdx.x; t < p.T; t += kThreads) {
    int before = 0;  // questions
    bool question = false;
    for (int j = 0; j < P; ++j) {
      before += 2 * P + 2 * s.gap[j] < t;
      question = question || 2 * P + 2 * s.gap[j] == t;
    }
    if (!question) tokens[t] = noise.integer(uint32_t(t - 2 * P - before), uint32_t(p.N));
  }
}

__device__ void comp(const Recall& p, const Shared& s, const Philox& random, int64_t row) {
  const int third = p.N / 3, n = p.side, P = p.P;
  int64_t* tokens = p.tokens + row * p.T;
  distinct(random, 0, third - 1, n, s.list, s.a);
  distinct(random, n, third, n, s.list, s.b);
  distinct(random, 2 * n, p.N - 2 * third, P, s.list, s.values);
  distinct(random, 2 * n + P, P, P, s.list, s.order);
  race(random, 2 * n + 2 * P, p, s.wait, s.gap);
  for (int j = threadIdx.x; j < P; j += kThreads) {
    const int first = 1 + s.a[s.order[j] / n], second = third + s.b[s.order[j] % n];
    const int value = 2 * third + s.values[j], at = 3 * P + 2 * s.gap[j];
    tokens[3 * j] = tokens[at] = first;
    tokens[3 * j + 1] = tokens[at + 1] = second;
    tokens[3 * j + 2] = value;
    answer(p, s, row, j, at + 1, value);
  }
}

__device__ void forget(const Recall& p, const Shared& s, const Philox& random, int64_t row) {
  const int half = p.N / 2, P = p.P, R = p.R;
  int64_t* tokens = p.tokens + row * p.T;
  distinct(random, 0, half - 1, P, s.list, s.a);
  distinct(random, P, p.N - half, P + R, s.list, s.values);
  distinct(random, 2 * P + R, P, R, s.list, s.order);  // the keys that are written again
  race(random, 2 * P + 2 * R, p, s.wait, s.gap);
  for (int j = threadIdx.x; j < P + R; j += kThreads) {
    tokens[2 * j] = 1 + s.a[j < P ? j : s.order[j - P]];
    tokens[2 * j + 1] = half + s.values[j];
  }
  for (int j = threadIdx.x; j < P; j += kThreads) {
    int last = s.values[j];
    for (int i = 0; i < R; ++i) last = s.order[i] == j ? s.values[P + i] : last;
    const int at = 2 * (P + R) + 2 * s.gap[j];
    tokens[at] = 1 + s.a[j];
    answer(p, s, row, j, at, half + last);
  }
}

__host__ __device__ int ids(const Recall& p) { return p.N > p.P ? p.N : p.P; }

size_t bytes(const Recall& p) {
  return size_t(p.spaces) * sizeof(double) + size_t(ids(p) + 5 * (p.P + p.R)) * sizeof(int);
}

__global__ void __launch_bounds__(kThreads) recall_kernel(Recall p) {
  extern __shared__ double memory[];
  const int64_t row = blockIdx.x;
  int* rest = reinterpret_cast<int*>(memory + p.spaces);
  Shared s{memory, rest};
  rest += ids(p);
  for (int** drawn : {&s.a, &s.b, &s.values, &s.order, &s.gap}) {
    *drawn = rest;
    rest += p.P + p.R;
  }
  for (int t = threadIdx.x; t < p.T; t += kThreads) p.tokens[row * p.T + t] = 0;
  const Philox random{p.seed, uint64_t(p.indices[row]), p.split * 65536 + kContent};
  __syncthreads();
  switch (p.kind) {
    case RecallKind::mqar: mqar(p, s, random, row); break;
    case RecallKind::comp: comp(p, s, random, row); break;
    case RecallKind::forget: forget(p, s, random, row); break;
  }
}

}  // namespace

cudaError_t make_recall(const Recall& p, cudaStream_t stream) {
  if (p.B == 0) return cudaSuccess;
  recall_kernel<<<unsigned(p.B), kThreads, bytes(p), stream>>>(p);
  return cudaGetLastError();
}

}  // namespace horner::cuda
