// Tensors and states as kernels see them: pointers and strides, no framework.
#pragma once

#include <cstdint>

namespace horner::cuda {

enum class Type { f64, f32, f16, bf16 };

// A tensor (B,T,heads,width), last dimension contiguous, strides in elements. Query head h reads head h / group.
struct Rows {
  void* data = nullptr;
  int64_t b = 0, t = 0, h = 0;
  int group = 1;
};

// A state (B,heads,R,N), any strides, in the accumulator's type; data == nullptr: zero, or not wanted.
// part: the stride between the states of two parts of the time.
struct StateView {
  void* data = nullptr;
  int64_t b = 0, h = 0, r = 0, n = 0;
  int group = 1;
  int64_t part = 0;
};

constexpr int kChunk = 64;  // tokens

// The sequences of a batch, plain or packed.
struct Sequences {
  int64_t count = 0, T = 0;
  const int* starts = nullptr;  // (count+1) of a packed batch; null: `count` rows of T tokens
  // Slots for the chunks of all sequences. The first chunk of sequence n of a packed batch has slot starts[n] / 64 + n;
  // some slots stay empty.
  int64_t slots() const {
    return starts ? T / kChunk + count : count * ((T + kChunk - 1) / kChunk);
  }
};

}  // namespace horner::cuda
