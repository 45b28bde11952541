// Kernels of `attention`: one token against a cache (step.cu), and the sinks of a window (sinks.cu).
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

constexpr int kMostStepSplits = 128;
// A row of fixed caches is divided by its own length alone, so it has the same bits in any batch.
constexpr int64_t kFixedShare = 128;  // keys of a block, while kMostStepSplits blocks suffice

// One token. The slots of a cache are contiguous; rows and heads have strides (t is unused).
struct AttentionStep {
  int64_t B;
  int G, r, K, V;      // r: query heads of a group
  int64_t S;           // slots of the cache; the last of them is the newest
  bool fixed;          // token p of a row lies in slot p mod S, and the new one is written there
  int64_t window, N;   // 0: none; sinks
  float scale, clamp;  // clamp: infinity if there is none
  Element type;
  Strided q, k, v;       // the token
  Strided keys, values;  // the cache before it
  Strided sink_keys, sink_values;
  const int64_t* seen;         // (B,G): tokens before this one; null: none
  Strided new_key, new_value;  // where the token is written; null: nowhere
  int64_t* new_seen;           // (B,G): seen + 1, if new_key is there
  void* o;                     // (B,H,V)
  float* norm;                 // (B,H); null: not wanted
  int splits;                  // blocks that share the keys of a row
  float* partial;              // (B,G,chunks,splits,heads of a chunk,V+2)
  unsigned* arrived;           // (B,G,chunks), zero before and after
};

// Up to kSinksAtOnce sinks that queries read in addition to their window. Query t of a row that has
// seen n tokens reads the sinks s <= n + t - window. K = V, bf16 or fp16.
constexpr int kSinksAtOnce = 4;
constexpr int kSinkRows = 256;  // of a block
struct AttentionSinks {
  int64_t B, T;
  int64_t sequences;  // B, or the sequences of a packed batch; then B is 1
  const int* starts;  // (sequences + 1) first tokens of a packed batch; null: B rows
  int H, G, K;
  int first, count, N;  // sinks first .. first + count - 1 of all N
  int64_t window;
  float scale;
  Element type;
  const int64_t* seen;  // (sequences,G); null: nothing
  Strided q, o;         // (B,T,H,K); o: over the window; the forward adds the sinks to it
  // Slot s of a sequence is t elements after the slot before. in_tokens: the sinks are the first tokens of the call, in
  // tensors (B,T,G,K). Else they are in tensors (sequences,G,N,K).
  Strided keys, values;
  bool in_tokens;
  float* norm;         // (B,H,T); the forward adds the sinks to it
  Strided grad, dq;    // backward: gradient of o; dq is added to
  const float* dnorm;  // (B,T,H); null: zero
  // Gradients of keys and values from the rows of a block: (2,H,blocks,N,K).
  float* partial;

  // Blocks of rows. A packed batch has a slot for each: the first of sequence n has slot starts[n] / kSinkRows + n, and some
  // slots stay empty.
  __host__ __device__ int64_t row_blocks() const { return (T + kSinkRows - 1) / kSinkRows; }
  __host__ __device__ int64_t blocks() const {
    return starts ? T / kSinkRows + sequences : B * row_blocks();
  }
};

cudaError_t attention_sinks_forward(const AttentionSinks& p, cudaStream_t stream);
cudaError_t attention_sinks_backward(const AttentionSinks& p, cudaStream_t stream);

// Flash attention's backward takes no gradient dn of the log-normaliser n; the correct one is
// dS = P (dP - do.o + dn). So we pass o' = o - dn do' / |do'|^2 instead of o: then
// do'.o' = do.o - dn. do' is do; but if a whole row is below 2^-60, its first element becomes 2^-60.
struct AttentionShift {
  int64_t B, T;
  int H, V;
  Strided o, grad;             // (B,T,H,V) bf16
  const float* dnorm;          // (B,T,H)
  void *moved_o, *moved_grad;  // (B,T,H,V)
};
cudaError_t attention_shift(const AttentionShift& p, cudaStream_t stream);

int attention_step_heads(int r);   // query heads that a block serves: a chunk
int attention_step_blocks(int r);  // blocks per multiprocessor that fill it once (r = 1) or evenly
cudaError_t attention_step(const AttentionStep& p, cudaStream_t stream);

}  // namespace horner::cuda
