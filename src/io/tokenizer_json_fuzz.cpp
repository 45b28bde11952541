// fuzz-sources: src/io/tokenizer/unicode.cpp src/io/tokenizer/spec.cpp src/io/tokenizer/regex.cpp
// fuzz-sources: src/io/tokenizer/normalize.cpp src/io/tokenizer/split.cpp src/io/tokenizer/bpe.cpp
// fuzz-sources: src/io/tokenizer/wordpiece.cpp src/io/tokenizer/decode.cpp src/io/tokenizer/added.cpp
// fuzz-sources: src/io/tokenizer/json.cpp src/io/tokenizer/read.cpp src/io/tokenizer.cpp
// fuzz-sources: src/core/json.cpp src/core/hash.cpp
//
// Any bytes are refused with a DataError, or are a tokenizer whose ids lie in its vocabulary.
// Input: tokenizer.json, or the pattern of its Split where that does not begin with {; a zero; a text.
#include <cstdlib>

#include "core/check.h"
#include "core/json.h"
#include "io/tokenizer.h"

namespace {

std::string with_pattern(std::string_view pattern) {
  const std::string text = horner::to_line(std::string(pattern));
  return R"({"pre_tokenizer":{"type":"Split","behavior":"MergedWithNext","pattern":{"Regex":)" +
         text +
         R"(}},"model":{"type":"BPE","vocab":{"<unk>":0,"a":1},"merges":[],"unk_token":"<unk>"}})";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(input.find('\0'), size);
  const std::string_view text = zero < size ? input.substr(zero + 1) : "caf\xc3\xa9 a\xff 12";
  try {
    const std::string_view head = input.substr(0, zero);
    const std::string json = head.starts_with('{') ? std::string(head) : with_pattern(head);
    const horner::Tokenizer tokenizer = horner::parse_tokenizer_json(json, "fuzz");
    const auto ids = tokenizer.encode(text);
    for (const int32_t id : ids) {
      if (id < 0 || id >= tokenizer.vocabulary()) std::abort();
    }
    tokenizer.decode(ids, true);
  } catch (const horner::DataError&) {
  }
  return 0;
}
