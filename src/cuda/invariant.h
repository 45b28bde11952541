// Kernels that cut the time into parts to fill the GPU choose the number of parts by the batch size too. So the last bits of
// a row depend on the size of its batch.
#pragma once

#include <cstdlib>
#include <string_view>

namespace horner::cuda {

// HORNER_BATCH_INVARIANT=1: the parts do not depend on the batch, and a row has the same bits in any batch.
inline bool batch_invariant() {
  const char* wanted = std::getenv("HORNER_BATCH_INVARIANT");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

}  // namespace horner::cuda
