// A token's key and value in a slot of a page: keys of 16 tokens lie side by side (pages.h).
#pragma once

#include <algorithm>
#include <type_traits>

#include "engine/cpu/kernels.h"
#include "io/gguf_blocks.h"

namespace horner {

// keys and values: where those of the head begin in the page. T: float, or uint16_t for halves. The value is padded to 16s.
template <class T>
void put_token(
    const float* k, int64_t K, const float* v, int64_t V, int64_t slot, T* keys, T* values
) {
  const auto put = [](const float* x, int64_t n, T* y) {
    float padded[16] = {};
    std::copy_n(x, n, padded);
    if constexpr (std::is_same_v<T, float>) {
      std::copy_n(padded, 16, y);
    } else {
      to_halves(padded, 16, y);
    }
  };
  T* key = keys + slot / 16 * 16 * K + slot % 16;
  T* value = values + slot * ((V + 15) / 16 * 16);
  for (int64_t d = 0; d < K; d += 16) {
    T some[16];
    const int64_t n = std::min<int64_t>(16, K - d);
    put(k + d, n, some);
    for (int64_t j = 0; j < n; ++j) key[(d + j) * 16] = some[j];
  }
  for (int64_t d = 0; d < V; d += 16) put(v + d, std::min<int64_t>(16, V - d), value + d);
}

template <class T>
void get_token(
    const T* keys, const T* values, int64_t slot, int64_t K, float* k, int64_t V, float* v
) {
  const auto number = [](T x) {
    if constexpr (std::is_same_v<T, float>)
      return x;
    else
      return half_to_float(x);
  };
  const T* key = keys + slot / 16 * 16 * K + slot % 16;
  const T* value = values + slot * ((V + 15) / 16 * 16);
  for (int64_t d = 0; d < K; ++d) k[d] = number(key[d * 16]);
  for (int64_t d = 0; d < V; ++d) v[d] = number(value[d]);
}

}  // namespace horner
