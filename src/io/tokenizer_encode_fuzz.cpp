// fuzz-sources: src/io/tokenizer/unicode.cpp src/io/tokenizer/spec.cpp src/io/tokenizer/regex.cpp
// fuzz-sources: src/io/tokenizer/normalize.cpp src/io/tokenizer/split.cpp src/io/tokenizer/bpe.cpp
// fuzz-sources: src/io/tokenizer/wordpiece.cpp src/io/tokenizer/decode.cpp src/io/tokenizer/added.cpp
// fuzz-sources: src/io/tokenizer/json.cpp src/io/tokenizer/read.cpp src/io/tokenizer.cpp
// fuzz-sources: src/core/json.cpp src/core/hash.cpp
//
// Any text comes back from a byte-level tokenizer, and is encoded by a WordPiece one.
#include <cstdlib>

#include "core/check.h"
#include "io/tokenizer.h"

namespace horner {
namespace {

// Every byte in GPT-2's alphabet, and a few merges.
Tokenizer make_bpe() {
  std::string vocabulary = "{";
  int32_t id = 0, next = 256;
  const auto add = [&](const std::string& token) {
    vocabulary += fmt::format("{}\"{}\":{}", id == 0 ? "" : ",", token, id);
    ++id;
  };
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    add(fmt::format("\\u{:04x}", printable ? byte : next++));
  }
  for (const char* token : {"th", "the", "ll", "\\u0120a", "\\u0120\\u0120", "<|endoftext|>"})
    add(token);
  return parse_gpt2(vocabulary + "}", "t h\nth e\nl l\n\xc4\xa0 a\n\xc4\xa0 \xc4\xa0\n", "bpe");
}

}  // namespace
}  // namespace horner

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const horner::Tokenizer bpe = horner::make_bpe();
  static const horner::Tokenizer bert =
      horner::parse_bert("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n##a\n##b\ncaf\n##e\n!\n", "bert");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (bpe.decode(bpe.encode(text, {.control = false})) != text) std::abort();
  if (bpe.decode(bpe.encode(text), true) != text) std::abort();
  bert.decode(bert.encode(text, {.surround = true}));
  return 0;
}
