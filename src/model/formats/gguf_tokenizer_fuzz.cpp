// fuzz-sources: src/io/tokenizer/unicode.cpp src/io/tokenizer/spec.cpp src/io/tokenizer/regex.cpp
// fuzz-sources: src/io/tokenizer/normalize.cpp src/io/tokenizer/split.cpp src/io/tokenizer/bpe.cpp
// fuzz-sources: src/io/tokenizer/wordpiece.cpp src/io/tokenizer/decode.cpp src/io/tokenizer/added.cpp
// fuzz-sources: src/io/tokenizer/json.cpp src/io/tokenizer/read.cpp src/io/tokenizer.cpp
// fuzz-sources: src/core/json.cpp src/core/hash.cpp src/io/gguf_header.cpp src/io/gguf_blocks.cpp
// fuzz-sources: src/model/formats/gguf_tokenizer.cpp
//
// The metadata of any GGUF file are refused with a DataError, or are a tokenizer whose ids lie in its vocabulary.
// Input: kind, cut, flags, an id; then lines: tokens, and merges, which have a space. A token's type and score are its first bytes.
#include <cstdlib>
#include <cstring>

#include "core/check.h"
#include "model/formats/gguf_tokenizer.h"

namespace horner {
namespace {

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
std::string text(std::string_view value) { return raw<uint64_t>(value.size()).append(value); }

// The metadata of a file, pair by pair.
struct Metadata {
  std::string pairs;
  uint64_t count = 0;

  void add(const char* key, GgufValue::Kind kind, const std::string& value) {
    pairs += text(std::string("tokenizer.ggml.") + key) + raw<uint32_t>(kind) + value;
    ++count;
  }
  void add(const char* key, GgufValue::Kind kind, uint64_t n, const std::string& values) {
    add(key, GgufValue::Array, raw<uint32_t>(kind) + raw(n) + values);
  }
  std::string file() const {
    return "GGUF" + raw<uint32_t>(3) + raw<uint64_t>(0) + raw(count) + pairs;
  }
};

void make(std::string_view input) {
  const char* const kinds[] = {"gpt2", "llama", "bert"};
  const char* const cuts[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
  const auto kind = uint8_t(input[0]), cut = uint8_t(input[1]), flags = uint8_t(input[2]);
  std::string tokens, merges, types, scores;
  uint64_t n = 0, m = 0;
  for (size_t at = 4; at < input.size();) {
    const std::string_view line = input.substr(at, input.find('\n', at) - at);
    at += line.size() + 1;
    if (line.find(' ') != line.npos) {
      merges += text(line), ++m;
      continue;
    }
    const auto first = line.empty() ? uint8_t(0) : uint8_t(line[0]);
    tokens += text(line), ++n;
    types += raw<int32_t>(first % 8);
    scores += raw(float(first) - 100);
  }
  Metadata metadata;
  metadata.add("model", GgufValue::String, text(kinds[kind % 3]));
  metadata.add("pre", GgufValue::String, text(cuts[cut % 4]));
  metadata.add("tokens", GgufValue::String, n, tokens);
  metadata.add("merges", GgufValue::String, m, merges);
  metadata.add("scores", GgufValue::F32, n, scores);
  if (flags & 1) metadata.add("token_type", GgufValue::I32, n, types);
  if (flags & 2) metadata.add("bos_token_id", GgufValue::U32, raw<uint32_t>(uint8_t(input[3])));
  if (flags & 4) metadata.add("add_bos_token", GgufValue::Bool, raw<uint8_t>(1));
  if (flags & 8) metadata.add("eos_token_id", GgufValue::I32, raw<int32_t>(int8_t(input[3])));
  if (flags & 16) metadata.add("add_space_prefix", GgufValue::Bool, raw<uint8_t>(0));
  const std::string file = metadata.file();
  const auto tokenizer = gguf_tokenizer(parse_gguf(file, "fuzz"));
  if (!tokenizer) std::abort();
  const auto ids = tokenizer->encode(input, {.surround = true});
  for (const int32_t id : ids) {
    if (id < 0 || id >= tokenizer->vocabulary()) std::abort();
  }
  tokenizer->decode(ids, true);
}

}  // namespace
}  // namespace horner

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 5 || size > 4096) return 0;
  try {
    horner::make({reinterpret_cast<const char*>(data), size});
  } catch (const horner::DataError&) {
  }
  return 0;
}
