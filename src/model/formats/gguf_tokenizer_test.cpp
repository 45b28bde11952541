#include "model/formats/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/file.h"
#include "core/json.h"
#include "core/thrown_test.h"
#include "model/formats/formats.h"

namespace horner {
namespace {

const std::string kGoldens = "src/model/formats/goldens/";  // by tools/gguf_goldens.py

TEST(GgufTokenizer, IdsAndTextsAreThoseOfSentencepieceAndOfBert) {
  for (const std::string name : {"sentencepiece", "bare", "wordpiece"}) {
    const Tokenizer tokenizer = open_tokenizer(kGoldens + name + ".gguf");
    const std::string path = kGoldens + name + ".json";
    for (const Json& row : parse_json(read_file(path), path)) {
      const auto text = row[0].get<std::string>();
      const auto ids = row[1].get<std::vector<int32_t>>();
      EXPECT_EQ(tokenizer.encode(text), ids) << name << ": '" << text << "'";
      EXPECT_EQ(tokenizer.decode(ids), row[2].get<std::string>()) << name << ": '" << text << "'";
    }
  }
}

TEST(GgufTokenizer, ATextBeginsWithTheTokenThatTheFileNames) {
  const Tokenizer tokenizer = open_tokenizer(kGoldens + "sentencepiece.gguf");
  std::vector<int32_t> ids = tokenizer.encode("the state");
  ids.insert(ids.begin(), 1);
  EXPECT_EQ(tokenizer.encode("the state", {.surround = true}), ids);
  EXPECT_EQ(tokenizer.end(), 2);
  const Tokenizer bert = open_tokenizer(kGoldens + "wordpiece.gguf");
  ids = bert.encode("the state");
  ids.insert(ids.begin(), 2), ids.push_back(3);  // [CLS] and [SEP], though the file has no flags
  EXPECT_EQ(bert.encode("the state", {.surround = true}), ids);
}

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
std::string text(const std::string& value) { return raw<uint64_t>(value.size()) + value; }
std::string list(const char* key, GgufValue::Kind kind, uint64_t n, const std::string& values) {
  return text(key) + raw<uint32_t>(GgufValue::Array) + raw<uint32_t>(kind) + raw(n) + values;
}

TEST(GgufTokenizer, BytesThatAreNoTextAreRefused) {
  const auto error = [](const std::string& kind, const std::string& merge, float score) {
    const std::string file =
        "GGUF" + raw<uint32_t>(3) + raw<uint64_t>(0) + raw<uint64_t>(4) +
        text("tokenizer.ggml.model") + raw<uint32_t>(GgufValue::String) + text(kind) +
        list("tokenizer.ggml.tokens", GgufValue::String, 2, text("a") + text("b")) +
        list("tokenizer.ggml.merges", GgufValue::String, 1, text(merge)) +
        list("tokenizer.ggml.scores", GgufValue::F32, 2, raw(score) + raw(score));
    return thrown<DataError>([&] { gguf_tokenizer(parse_gguf(file, "f")); });
  };
  EXPECT_EQ(error("gpt2", "a \xff", 0), "f: a merge is not UTF-8");
  EXPECT_EQ(error("llama", "a b", NAN), "f: a score of a token is no number");
}

}  // namespace
}  // namespace horner
