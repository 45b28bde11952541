// Parameters of the kernels of `delta`. Here q, k, v, g and beta have H heads each.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/rows.h"

namespace horner::cuda {

// Level 1: token by token, any T >= 1, K <= 256 (fp64: 128), V <= 256. A block owns kDeltaColumns columns of the state.
// Results that are sums over columns come out per block, in the accumulator's type, and must be summed over blocks.
constexpr int kDeltaColumns = 32, kDeltaSegment = 64;
inline int delta_blocks(int V) { return (V + kDeltaColumns - 1) / kDeltaColumns; }
inline int delta_rows(int K) { return K <= 64 ? 64 : K <= 128 ? 128 : 256; }

struct DeltaTokens {
  int64_t B = 0, T = 0, H = 0;
  int K = 0, V = 0;
  double scale = 1;
  Type type = Type::f32;
  const void *q = nullptr, *k = nullptr, *v = nullptr;  // (B,T,H,.) contiguous
  const void *g = nullptr, *beta = nullptr;             // (B,T,H), accumulator's type; g null: none
  bool per_key = false;                                 // g is (B,T,H,K)
  const void* first = nullptr;                          // (B,H,K,V), accumulator's type; null: 0
  void *o = nullptr, *last = nullptr;                   // last null: not wanted
  // backward
  const void *dout = nullptr, *dlast = nullptr;  // dlast null: 0
  void *dq = nullptr, *dk = nullptr;             // (blocks,B,T,H,K)
  void *dg = nullptr, *dbeta = nullptr;          // (blocks,..) of g and beta; dg null: not wanted
  void *dv = nullptr, *dfirst = nullptr;         // (B,T,H,V); dfirst null: not wanted
  void* starts = nullptr;  // (B,H,blocks,segments,rows,columns): the state that enters each segment
  void* inside = nullptr;  // (B,H,blocks,kDeltaSegment,rows,columns): the state before its tokens
};
cudaError_t delta_recurrent(const DeltaTokens&, cudaStream_t);
cudaError_t delta_recurrent_backward(const DeltaTokens&, cudaStream_t);

// One token, forward, at the speed of memory: K <= 256, V a multiple of 4, no fp64.
struct DeltaStep {
  int64_t B = 0;
  int G = 0, K = 0, V = 0;
  double scale = 1;
  Type type = Type::f32;
  Rows q, k, v;                               // (B,1,H,K), (B,1,G,K), (B,1,G,V)
  const float *g = nullptr, *beta = nullptr;  // (B,G); g null: none
  bool per_key = false;                       // g is (B,G,K)
  const float* first = nullptr;               // (B,G,K,V), 16 byte aligned; null: 0
  float* last = nullptr;                      // null: not wanted
  void* o = nullptr;                          // (B,1,H,V)
};
cudaError_t delta_step(const DeltaStep&, cudaStream_t);

// Level 2: chunks of 64 tokens on tensor cores (mma.sync), bf16, K and V multiples of 8 up to 128; see chunked.cuh.
struct DeltaChunks {
  Sequences sequences;
  int64_t H = 0;
  int K = 0, V = 0;
  float scale = 1;
  Rows q, k, v, out;         // out: o, or do in the gradient
  Rows g, beta;              // fp32, one number per token; g.data null: no decay
  bool per_key = false;      // g is (B,T,H,K); see per_key/per_key.cuh
  bool narrow_g = false;     // g is bf16; only per key
  StateView first, last;     // S_0 -> S_T; in the reverse sweep dS_T -> dS_0
  void* inverse = nullptr;   // (slots,H,64,64) bf16: A
  void* scores = nullptr;    // (slots,H,64,64) bf16: P
  float* factors = nullptr;  // (slots,H,2,64): e^G, b e^{G_C-G}; per key (slots,H,keys): e^{G_C}
  void *read_k = nullptr, *read_q = nullptr, *write_k = nullptr;  // per key: (slots,H,64,keys) bf16
  Rows error;                                                     // (B,T,H,V) bf16: E
  void *S = nullptr,
       *Z = nullptr;  // (slots,H,values,keys) bf16, transposed: enter each chunk
  Rows dq, dk, dv;    // bf16
  float *dg = nullptr, *dbeta = nullptr;  // (B,T,H)
  Rows dg_keys;                           // per key: (B,T,H,K) fp32; bf16 if g is bf16

  int keys() const { return K <= 64 ? 64 : 128; }
  int values() const { return V <= 64 ? 64 : 128; }
};
cudaError_t delta_solve(const DeltaChunks&, cudaStream_t);    // A, P and the factors
cudaError_t delta_forward(const DeltaChunks&, cudaStream_t);  // o; if p.S is given: E and S instead
cudaError_t delta_reverse(const DeltaChunks&, cudaStream_t);  // dv and Z
cudaError_t delta_gradient(const DeltaChunks&, cudaStream_t);  // dq, dk, dg, dbeta
// The same with a decay per key.
cudaError_t delta_key_solve(const DeltaChunks&, cudaStream_t);
cudaError_t delta_key_gradient(const DeltaChunks&, cudaStream_t);

}  // namespace horner::cuda
