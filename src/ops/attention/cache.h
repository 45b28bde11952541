// Caches that grow in place: a part of attention's state is a view of a buffer with room after it.
//
//   buffer  |.......|=== view: slots first .. end ===|......... room .........|   (B,G,capacity,X)
//                                                    ^ used: slots from here on are unwritten
//
// Slots are written once and never again, so every state that was handed out stays valid: a fork
// shares its past with its source, and a rollback is the old state. A cache that ends where its
// buffer is used up to grows in place. Any other one (a second continuation of the same state, a
// clone, a tensor from a file, a buffer that is full) is copied once into a buffer of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace horner {

// `cache` (B,G,S,X) and T slots after it, of which the last `keep` remain; keep = 0: all. The last
// min(T, keep) slots of the result are to be written by the caller.
at::Tensor extend(const at::Tensor& cache, int64_t T, int64_t keep);

// The same and rows (B,G,T,X) written. Differentiable where a gradient is wanted: then everything
// is copied.
at::Tensor append(const at::Tensor& cache, const at::Tensor& rows, int64_t keep);

bool has_room(const at::Tensor& cache);       // whether it is a view of such a buffer
int64_t room_bytes(const at::Tensor& cache);  // what its buffer takes, all slots counted
int64_t least_appended(const at::Tensor& cache
);  // tokens that every row has got for certain; unknown: 0

}  // namespace horner
