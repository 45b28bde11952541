// Kernels that cut the time into parts to fill the GPU choose the number of parts by the batch size too. So the last bits of
// a row depend on the size of its batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace horner::cuda {

// HORNER_BATCH_INVARIANT=1: the parts do not depend on the batch, and a row has the same bits in any batch.
inline bool batch_invariant() {
  const char* wanted = std::getenv("HORNER_BATCH_INVARIANT");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

// How many parts of the time a sweep has that needs `blocks` blocks, when the GPU runs `room` blocks at once: as many as fill
// the GPU, each of at least 16 chunks, none of them empty.
inline int time_parts(int64_t blocks, int64_t room, int64_t chunks) {
  if (batch_invariant()) return 1;
  const int64_t wanted = std::min(room / blocks, chunks / 16);
  if (wanted < 2) return 1;
  const int64_t each = (chunks + wanted - 1) / wanted;
  return int((chunks + each - 1) / each);
}

}  // namespace horner::cuda
