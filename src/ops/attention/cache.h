// Caches that grow in place: a part of attention's state is a view of a buffer with room after it.
//
//   buffer  |.......|=== view: slots first .. end ===|......... room .........|   (B,G,capacity,X)
//                                                    ^ used: slots from here on are unwritten
//
// A slot is written once and never again, so every old state stays valid: a fork shares its past
// with its source, and a rollback is the old state. A cache grows in place if its view ends at
// `used`. Any other cache (a second continuation of the same state, a clone, a tensor from a file, a
// full buffer) is copied once into a new buffer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace horner {

// `cache` (B,G,S,X) with T more slots, cut to the last `keep` slots; keep = 0: all slots. The caller
// must write the last min(T, keep) slots of the result.
at::Tensor extend(const at::Tensor& cache, int64_t T, int64_t keep);

// The same, with rows (B,G,T,X) written. If a gradient is wanted, or a transform stands for a
// tensor, it is made of tensor operations: then everything is copied.
at::Tensor append(const at::Tensor& cache, const at::Tensor& rows, int64_t keep);

// While it lives, caches of this thread do not grow in place: the longer one is a copy without room,
// in memory of its own, as compiled graphs expect it.
class CachesAreCopied {
 public:
  explicit CachesAreCopied(bool on);
  CachesAreCopied(const CachesAreCopied&) = delete;
  CachesAreCopied& operator=(const CachesAreCopied&) = delete;
  ~CachesAreCopied();

 private:
  const bool before_;
};

// A fixed cache stays where it is, for work that is recorded once and replayed. Token p of a row lies in slot p mod C, and the next
// token is written there in place, one token at a time; no old state stays valid. Without a window C is more than any row has.
at::Tensor fixed_cache(const at::Tensor& memory);  // of memory (B,G,C,X), which it keeps
bool is_fixed(const at::Tensor& cache);            // it, or a view of it
// Its slots in the order of other caches: slot j holds token seen - C + j. seen (B,G)
at::Tensor in_order(const at::Tensor& fixed, const at::Tensor& seen);
at::Tensor oldest(const at::Tensor& fixed, const at::Tensor& seen);  // slot 0 of these (B,G,1,X)

bool has_room(const at::Tensor& cache);       // whether it is a view of such a buffer
int64_t room_bytes(const at::Tensor& cache);  // bytes of its whole buffer
int64_t least_appended(const at::Tensor& cache
);  // every row has at least this many tokens; 0: unknown

}  // namespace horner
