// Kernels that cut time among idle processors cut it by the size of the batch, too: a row's last bits depend on the others.
#pragma once

#include <cstdlib>
#include <string_view>

namespace horner::cuda {

// HORNER_BATCH_INVARIANT=1: they cut by the length alone, and a row is the same bits in any batch.
inline bool batch_invariant() {
  const char* wanted = std::getenv("HORNER_BATCH_INVARIANT");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

}  // namespace horner::cuda
