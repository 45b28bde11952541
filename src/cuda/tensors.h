// Tensors of a call as kernels read them (rows.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "cuda/rows.h"

namespace horner {

// Whether all heads of (B,T,H,..) are one, as expand makes them.
inline bool one_head(const at::Tensor& x) {
  return x.dim() == 4 && x.size(2) > 1 && x.stride(2) == 0;
}

// x with a contiguous last dimension; aligned: also with rows of whole 16-byte units, no two of them the same. Copied if it is
// not so already.
inline at::Tensor readable(const at::Tensor& x, bool aligned) {
  const int64_t unit = 16 / int64_t(x.element_size());
  bool fine = x.stride(-1) == 1 || x.size(-1) == 1;
  if (aligned) {
    fine = fine && reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0;
    for (int64_t i = 0; i + 1 < x.dim(); ++i)
      fine = fine && (x.size(i) == 1 || (x.stride(i) % unit == 0 && x.stride(i) > 0));
  }
  return fine ? x.detach() : x.detach().clone(at::MemoryFormat::Contiguous);
}

inline cuda::Type type_of(at::ScalarType type) {
  return type == at::kDouble     ? cuda::Type::f64
         : type == at::kFloat    ? cuda::Type::f32
         : type == at::kBFloat16 ? cuda::Type::bf16
                                 : cuda::Type::f16;
}

// x as rows for a kernel over H heads.
inline cuda::Rows rows(const at::Tensor& x, int64_t H) {
  return {x.data_ptr(), x.stride(0), x.stride(1), x.stride(2), int(H / x.size(2))};
}

inline cuda::StateView view(const at::Tensor& S, int64_t H, bool transposed) {
  if (!S.defined()) return {};
  const int64_t r = S.stride(transposed ? 3 : 2), n = S.stride(transposed ? 2 : 3);
  return {S.data_ptr(), S.stride(0), S.stride(1), r, n, int(H / S.size(1))};
}

// (B,T,H,..) or (B,H,..) summed over the query heads of each group.
inline at::Tensor grouped(const at::Tensor& x, int64_t dim, int64_t G) {
  const int64_t H = x.size(dim);
  return H == G ? x : x.unflatten(dim, {G, H / G}).sum(dim + 1);
}

}  // namespace horner
