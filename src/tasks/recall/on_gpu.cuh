// Parameters of the kernel that makes recall examples (on_gpu.h).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace horner::cuda {

enum class RecallKind : int { mqar, comp, forget };

struct Recall {
  RecallKind kind;
  int B, T, P;  // examples, tokens, pairs
  int R;        // forget: keys that are written again
  int side;     // comp: sqrt(P)
  int N;        // ids
  int spaces;   // places of questions
  bool noise;   // mqar: random ids instead of filler
  uint64_t seed;
  uint32_t split;
  const double* weights;      // (spaces)
  const int64_t* indices;     // (B)
  int64_t* tokens;            // (B,T)
  int64_t *places, *answers;  // (B,P), in increasing order of place
};

cudaError_t make_recall(const Recall&, cudaStream_t);

}  // namespace horner::cuda
