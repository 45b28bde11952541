#include "io/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <filesystem>
#include <sstream>

#include "core/check.h"
#include "core/data_test.h"
#include "core/file.h"
#include "core/json.h"

namespace horner {
namespace {

std::vector<std::string> split_at(const std::string& text, const std::string& mark) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (size_t end; (end = text.find(mark, at)) != text.npos; at = end + mark.size()) {
    parts.push_back(text.substr(at, end - at));
  }
  parts.push_back(text.substr(at));
  return parts;
}

// llama.cpp's 47 strings and the ids that it expects.
void expect_golden(const Tokenizer& tokenizer, const std::string& name) {
  const std::string stem = test_data("tokenizers/ggml_vocab_golden/ggml-vocab-" + name + ".gguf");
  const auto texts = split_at(read_file(stem + ".inp"), "\n__ggml_vocab_test__\n");
  const auto lines = split_at(read_file(stem + ".out"), "\n");
  ASSERT_EQ(texts.size(), 47u);
  ASSERT_GE(lines.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    std::istringstream line(lines[i]);
    std::vector<int32_t> ids;
    for (int32_t id; line >> id;) ids.push_back(id);
    EXPECT_EQ(tokenizer.encode(texts[i]), ids) << name << " " << i << ": " << texts[i];
  }
}

TEST(Tokenizer, Gpt2Golden) {
  HORNER_NEED(test_data("tokenizers/gpt2"));
  const Tokenizer tokenizer = load_tokenizer(test_data("tokenizers/gpt2"));
  expect_golden(tokenizer, "gpt-2");
  EXPECT_EQ(tokenizer.vocabulary(), 50257);
  EXPECT_EQ(tokenizer.end(), 50256);
  EXPECT_EQ(tokenizer.encode("a<|endoftext|>b"), (std::vector<int32_t>{64, 50256, 65}));
  EXPECT_EQ(tokenizer.encode("a<|endoftext|>b", {.control = false}).size(), 9u);
  EXPECT_EQ(tokenizer.decode({15496, 995, 50256}), "Hello world");
  EXPECT_EQ(tokenizer.decode({15496, 995, 50256}, true), "Hello world<|endoftext|>");
  EXPECT_EQ(tokenizer.bytes(995), " world");
  EXPECT_EQ(tokenizer.id("\xc4\xa0world"), 995);
  EXPECT_THROW(tokenizer.decode({50257}), UsageError);
}

TEST(Tokenizer, BertGolden) {
  HORNER_NEED(test_data("tokenizers/bert-base-uncased"));
  for (const char* file : {"tokenizer.json", "vocab.txt"}) {
    const Tokenizer tokenizer = load_tokenizer(test_data("tokenizers/bert-base-uncased/") + file);
    expect_golden(tokenizer, "bert-bge");
    EXPECT_EQ(tokenizer.vocabulary(), 30522);
    const auto ids = tokenizer.encode("Hello, World's [MASK]!", {.surround = true});
    EXPECT_EQ(ids, (std::vector<int32_t>{101, 7592, 1010, 2088, 1005, 1055, 103, 999, 102}));
    EXPECT_EQ(tokenizer.decode(ids), "hello, world ' s!");
  }
}

TEST(Tokenizer, LlamaGolden) {
  HORNER_NEED(test_data("tinystories656k/tokenizer.json"));
  const Tokenizer tokenizer = load_tokenizer(test_data("tinystories656k"));
  EXPECT_EQ(tokenizer.vocabulary(), 2048);
  EXPECT_EQ(tokenizer.begin(), 1);
  EXPECT_EQ(tokenizer.end(), 2);
  const Json golden =
      parse_json(read_file(test_data("tinystories656k/golden_numpy_greedy.json")), "golden");
  const auto prompt = golden["prompt_ids"].get<std::vector<int32_t>>();
  const std::string text = tokenizer.decode(prompt);
  EXPECT_EQ(tokenizer.encode(text, {.surround = true}), prompt) << text;
}

// Small tokenizers of every kind, by Hugging Face's library: tools/tokenizer_goldens.py.
TEST(Tokenizer, HuggingFaceGolden) {
  const std::string path = "src/io/goldens/tokenizers.json";
  const Json golden = parse_json(read_file(path), path);
  ASSERT_GT(golden.size(), 10u);
  for (const Json& test : golden) {
    const std::string name = test["name"].get<std::string>();
    const Tokenizer tokenizer = parse_tokenizer_json(test["tokenizer"].dump(), name);
    for (const Json& row : test["rows"]) {
      const std::string text = row[0].get<std::string>();
      const auto ids = row[1].get<std::vector<int32_t>>();
      EXPECT_EQ(tokenizer.encode(text), ids) << name << ": " << row[0].dump();
      const auto around = tokenizer.encode(text, {.surround = true});
      EXPECT_EQ(around, row[2].get<std::vector<int32_t>>()) << name << ": " << row[0].dump();
      EXPECT_EQ(tokenizer.decode(ids), row[3].get<std::string>()) << name << ": " << row[0].dump();
    }
  }
}

// Every string of bytes comes back, and its tokens hold its bytes.
TEST(Tokenizer, BytesRoundTrip) {
  std::vector<Tokenizer> tokenizers = {byte_tokenizer()};
  if (std::filesystem::exists(test_data("tokenizers/gpt2"))) {
    tokenizers.push_back(load_tokenizer(test_data("tokenizers/gpt2")));
  }
  for (const Tokenizer& tokenizer : tokenizers) {
    EXPECT_TRUE(rc::check([&](const std::string& random) {
      for (const std::string& text : {random, "caf\xc3\xa9 " + random + "\xe2\x82 it's  \n 12"}) {
        const auto ids = tokenizer.encode(text, {.control = false});
        std::string bytes;
        for (const int32_t id : ids) bytes += tokenizer.bytes(id);
        RC_ASSERT(bytes == text);
        RC_ASSERT(tokenizer.decode(ids) == text);
      }
    }));
  }
}

TEST(Tokenizer, Bytes) {
  const Tokenizer tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(tokenizer.vocabulary(), 257);
  EXPECT_EQ(tokenizer.end(), kByteSeparator);
  EXPECT_EQ(tokenizer.encode("a\xff"), (std::vector<int32_t>{97, 255}));
  EXPECT_EQ(tokenizer.decode({97, 256, 98}), "ab");
  EXPECT_TRUE(tokenizer.special(256));
  EXPECT_EQ(tokenizer.bytes(256), "");
}

std::string error_of(const std::string& json) {
  try {
    parse_tokenizer_json(json, "f");
  } catch (const DataError& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
    return error.what();
  }
  return "no error";
}

// The error of a file with a small model and these parts.
std::string with(const std::string& parts) {
  return error_of("{" + parts + R"(,"model":{"type":"WordPiece","vocab":{"[UNK]":0,"a":1}}})");
}

TEST(Tokenizer, WhatIsNotSupportedIsNamed) {
  EXPECT_EQ(with(R"("version":"1.0")"), "no error");
  EXPECT_EQ(with(R"("truncation":{"max_length":3},"padding":null)"), "no error");
  EXPECT_EQ(with(R"("extra":1)"), "f: the file: \"extra\" is not supported");
  EXPECT_EQ(
      with(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":""})"),
      "f: normalizer Precompiled is not supported"
  );
  EXPECT_EQ(
      with(R"("normalizer":{"type":"Lowercase","locale":"tr"})"),
      "f: normalizer Lowercase: \"locale\" is not supported"
  );
  EXPECT_EQ(
      with(R"("pre_tokenizer":{"type":"UnicodeScripts"})"),
      "f: pre_tokenizer UnicodeScripts is not supported"
  );
  EXPECT_EQ(
      with(
          R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})"
      ),
      "f: a pre_tokenizer after ByteLevel is not supported"
  );
  EXPECT_EQ(
      with(
          R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"[[:alpha:]]"},"behavior":"Isolated"})"
      ),
      "f: pattern \"[[:alpha:]]\": a class in a class is not supported"
  );
  EXPECT_EQ(
      with(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated"})"),
      "f: pattern \"(a\": missing closing parenthesis"
  );
  EXPECT_EQ(with(R"("decoder":{"type":"CTC"})"), "f: decoder CTC is not supported");
  EXPECT_EQ(
      with(R"("post_processor":{"type":"Other"})"), "f: post_processor Other is not supported"
  );
}

TEST(Tokenizer, AWrongModelIsNamed) {
  EXPECT_EQ(error_of(R"({"model":{"type":"Unigram"}})"), "f: model Unigram is not supported");
  EXPECT_EQ(error_of("{}"), "f: the file has no model");
  EXPECT_EQ(error_of("[]"), "f: the file must be an object");
  EXPECT_EQ(error_of("{").substr(0, 15), "f: is not JSON:");
  EXPECT_EQ(
      error_of(R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})"),
      "f: the id of \"a\" must be an integer from 0 to 2097152"
  );
  EXPECT_EQ(
      error_of(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})"),
      "f: model BPE: the merge \"a\" \"b\" is not of tokens"
  );
  EXPECT_EQ(
      error_of(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1}})"),
      "f: model BPE: dropout is not supported"
  );
  EXPECT_THROW(load_tokenizer("no/such/file"), DataError);
  EXPECT_THROW(load_tokenizer("src"), DataError);
}

TEST(Tokenizer, StepsDoNotMakeATextMuchLonger) {
  const auto steps = [](const std::string& step) {
    std::string list = step;
    for (int64_t i = 1; i < 40; ++i) list += "," + step;
    return list;
  };
  const std::string longer = "[tokenizer] its steps make a text more than 16 times as long";
  const std::string doubling = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  for (const std::string& part :
       {R"("normalizer":{"type":"Sequence","normalizers":[)" + steps(doubling) + "]}",
        R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)" +
            steps(R"({"type":"Metaspace","replacement":"  ","split":false})") + "]}",
        R"("normalizer":{"type":"Replace","pattern":{"String":"a"},"content":")" +
            std::string(100'000, 'a') + "\"}"}) {
    const Tokenizer hostile = parse_tokenizer_json(
        R"({"model":{"type":"BPE","vocab":{"a":0," ":1},"merges":[]},)" + part + "}", "f", ""
    );
    try {
      hostile.encode("aa aa");
      ADD_FAILURE() << part.substr(0, 200);
    } catch (const DataError& error) {
      EXPECT_EQ(error.what(), longer);
    }
  }
  EXPECT_EQ(
      with(R"("decoder":{"type":"Sequence","decoders":[)" + steps(doubling) + "]}"), "f: " + longer
  );
}

}  // namespace
}  // namespace horner
