// Made-up text for machines that have none: stories of a few sentences. Verbs agree with their subjects across relative
// clauses, so there is something to learn at a distance.
#pragma once

#include <string>
#include <vector>

#include "core/random.h"

namespace horner {

// Documents of about `bytes` bytes together; the same for the same seed.
std::vector<std::string> grammar_documents(uint64_t seed, size_t bytes);

}  // namespace horner
