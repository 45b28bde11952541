// One token of `linear` or `power` against a state that is read and not written, and the tokens since (ops/lazy.h):
//
//   o = f(q) A S + sum_j a_j w(q, k_j) v~_j  (/ den)      A = e^{g_1 + .. + g_n}      a_j = e^{g_{j+1} + .. + g_n}
//   linear: f(q) = c1 q, w = c1 q.k     power: f(q) = W m(q), w = c0 + c1 q.k + c2 (q.k)^2
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace horner::cuda {

enum class Gate { none, head, key };

struct ReadState {
  int64_t B = 0;
  int H = 0, G = 0, K = 0, V = 0;
  bool series = false;           // power
  int features = 0, order = 0;   // rows of S
  int n = 0, fold = 0;           // tokens since S, this one included; room in the ring
  float c0 = 0, c1 = 0, c2 = 0;  // scale included
  bool normalise = false, clamps = false, bf16 = false;
  float eps = 0;
  const void *q = nullptr, *k = nullptr, *v = nullptr;  // (B,1,heads,..), last dimension contiguous
  int64_t q_b = 0, q_h = 0, k_b = 0, k_h = 0, v_b = 0, v_h = 0;
  Gate gate = Gate::none;
  const float* g = nullptr;                   // (B,G) or (B,G,K)
  void *ring_k = nullptr, *ring_v = nullptr;  // (B,fold,G,K), (B,fold,G,V)
  float* ring_g = nullptr;                    // (B,fold,G) or (B,fold,G,K)
  const float* S = nullptr;                   // (B,G,features,V~); null: zero
  void* o = nullptr;                          // (B,1,H,V)
};

constexpr int kMostKeysRead = 256, kMostFold = 64;

cudaError_t read_state(const ReadState&, cudaStream_t);

}  // namespace horner::cuda
