#include <gtest/gtest.h>

#include "core/file.h"
#include "core/json.h"
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

}  // namespace
}  // namespace horner
