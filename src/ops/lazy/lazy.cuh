// One token of `linear` or `power` reads a state, which is not written, and the tokens since that state (lazy.h):
//
//   o = f(q) A S + sum_j a_j w(q, k_j) v~_j  (/ den)      A = e^{g_1 + .. + g_n}      a_j = e^{g_{j+1} + .. + g_n}
//   linear: f(q) = c1 q, w = c1 q.k     power: f(q) = W m(q), w = c0 + c1 q.k + c2 (q.k)^2
//
// and the fold, S' = A S + sum_j a_j m(k_j)^T v~_j  (linear: m(k) = k).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace horner::cuda {

enum class LazyGate { none, head, key };

struct LazyTokens {
  int64_t B = 0;
  int H = 0, G = 0, K = 0, V = 0;
  bool series = false;          // power
  int features = 0, order = 0;  // rows of S
  bool normalise = false, bf16 = false;
  int n = 0, fold = 0;  // tokens since S, with the one of this call; places in the ring
  LazyGate gate = LazyGate::none;
  void *ring_k = nullptr, *ring_v = nullptr;  // (B,fold,G,K), (B,fold,G,V)
  float* ring_g = nullptr;                    // (B,fold,G) or (B,fold,G,K)
  const float* S = nullptr;                   // (B,G,features,V~); null: zero
  bool overlaps = false;                      // sm_90: may start before the previous kernel ends

  __host__ __device__ int gates() const {  // number of decays per token and head
    return gate == LazyGate::none ? 0 : gate == LazyGate::head ? 1 : K;
  }
};

struct LazyRead : LazyTokens {
  float c0 = 0, c1 = 0, c2 = 0;  // scale included
  bool clamps = false;
  float eps = 0;
  const void *q = nullptr, *k = nullptr, *v = nullptr;  // (B,1,heads,..): token n - 1
  int64_t q_b = 0, q_h = 0, k_b = 0, k_h = 0, v_b = 0, v_h = 0;
  const float* g = nullptr;  // (B,G) or (B,G,K)
  void* o = nullptr;         // (B,1,H,V)
};

constexpr int kMostColumns = 256, kMostFold = 16;  // largest K and V; largest fold

cudaError_t lazy_read(const LazyRead&, cudaStream_t);  // puts token n - 1 into the ring
cudaError_t lazy_fold(const LazyTokens&, float* next, cudaStream_t);  // all n are in the ring

}  // namespace horner::cuda
