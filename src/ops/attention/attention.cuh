// Kernels of `attention`: one token against a cache (step.cu), and the sinks beside a window
// (sinks.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace horner::cuda {

enum class Element { f32, f16, bf16 };

// Rows of one tensor, last dimension contiguous, strides in elements.
struct Strided {
  void* data = nullptr;
  int64_t b = 0, t = 0, h = 0;
};

// One token. Slots of a cache follow each other; rows and heads have strides: t is unused there.
struct AttentionStep {
  int64_t B;
  int G, r, K, V;      // r: query heads of a group
  int64_t S;           // slots of the cache; the last of them is the newest
  int64_t window, N;   // 0: none; sinks
  float scale, clamp;  // clamp: infinity where there is none
  Element type;
  Strided q, k, v;       // the token
  Strided keys, values;  // the cache before it
  Strided sink_keys, sink_values;
  const int64_t* seen;         // (B,G), before it; null: nothing
  Strided new_key, new_value;  // where the token is written; null: nowhere
  void* o;                     // (B,H,V)
  float* norm;                 // (B,H); null: not wanted
  int splits;                  // blocks that share the keys of a row
  float* partial;              // (B,G,chunks,splits,heads of a chunk,V+2)
  int* arrived;                // (B,G,chunks), zero
};

// Up to kSinksAtOnce sinks that queries read beside their window: query t of a row that has seen n
// tokens reads sinks s <= n + t - window. K = V, bf16 or fp16.
constexpr int kSinksAtOnce = 4;
struct AttentionSinks {
  int64_t B, T;
  int H, G, K;
  int first, count, N;  // these sinks, of all
  int64_t window;
  float scale;
  Element type;
  const int64_t* seen;   // (B,G); null: nothing
  Strided q, o;          // (B,T,H,K); o over the window alone, and these sinks after the forward
  Strided keys, values;  // (B,G,N,K), slots follow each other; t is unused
  float* norm;           // (B,H,T), likewise
  Strided grad, dq;      // backward: of o; is added to
  const float* dnorm;    // (B,T,H); null: zero
  float *dk, *dv;        // (B,G,N,K), are added to
};

cudaError_t attention_sinks_forward(const AttentionSinks& p, cudaStream_t stream);
cudaError_t attention_sinks_backward(const AttentionSinks& p, cudaStream_t stream);

// A backward that knows do.o alone also gives the gradient of the log-normaliser n where o is moved
// along do: dS = P (dP - do.o + dn) = P (dP - do'.o') with o' = o - dn do' / |do'|^2. do' is do;
// where all of a row is below 2^-60, its first element is 2^-60.
struct AttentionShift {
  int64_t B, T;
  int H, V;
  Strided o, grad;             // (B,T,H,V) bf16
  const float* dnorm;          // (B,T,H)
  void *moved_o, *moved_grad;  // (B,T,H,V)
};
cudaError_t attention_shift(const AttentionShift& p, cudaStream_t stream);

int attention_step_heads(int r);  // query heads that a block serves: a chunk
cudaError_t attention_step(const AttentionStep& p, cudaStream_t stream);

}  // namespace horner::cuda
