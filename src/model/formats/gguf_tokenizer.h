// No torch here: this part is fuzzed.
#pragma once

#include <optional>

#include "io/gguf_header.h"
#include "io/tokenizer.h"

namespace horner {

// The tokenizer in GGUF metadata; nothing if there is none. DataError for a kind that is not read.
std::optional<Tokenizer> gguf_tokenizer(const GgufHeader& header);

}  // namespace horner
