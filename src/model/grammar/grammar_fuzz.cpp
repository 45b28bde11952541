// Patterns and schemas come from clients: whatever they hold, they end by a UsageError or by a grammar that never gets stuck.
// fuzz-sources: src/core/json.cpp src/io/tokenizer/unicode.cpp src/model/grammar/characters.cpp src/model/grammar/nfa.cpp
// fuzz-sources: src/model/grammar/dfa.cpp src/model/grammar/regex.cpp src/model/grammar/grammar.cpp
// fuzz-sources: src/model/grammar/json_text.cpp src/model/grammar/schema.cpp src/model/grammar/schema_values.cpp
// fuzz-sources: src/model/grammar/schema_containers.cpp src/model/grammar/schema_keywords.cpp
// fuzz-sources: src/model/grammar/schema_one_of.cpp
#include <cstdlib>

#include "core/check.h"
#include "model/grammar/grammar.h"

using namespace horner;
using namespace horner::grammar;

namespace {

// A walk of 60 bytes that the input chooses.
void walk(const Grammar& grammar, const uint8_t* data, size_t size) {
  Readings now = first_readings(grammar);
  for (size_t step = 0; step < 60; ++step) {
    if (now.empty()) std::abort();
    if (!can_go_on(now)) {
      if (!complete(now)) std::abort();
      return;
    }
    Readings next;
    for (int i = 0; i < 256 && next.empty(); ++i)
      next = after(grammar, now, uint8_t(i + data[step % size]));
    now = std::move(next);
  }
}

}  // namespace

// The first byte: whether it is a pattern or a schema.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 4096) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    walk(
        data[0] % 2 == 0 ? regex_grammar(text) : schema_grammar(parse_json(text, "schema")),
        data,
        size
    );
  } catch (const UsageError&) {
  } catch (const DataError&) {  // no JSON
  }
  return 0;
}
