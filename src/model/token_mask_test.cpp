#include "model/token_mask.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <set>

#include "core/data_test.h"

namespace horner {
namespace {

// A tokenizer of these tokens of text (in GPT-2's alphabet) and one special token at the end.
Tokenizer tokenizer_of(const std::vector<std::string>& tokens) {
  Json vocabulary = Json::object();
  for (size_t i = 0; i < tokens.size(); ++i) vocabulary[tokens[i]] = i;
  const Json special = {
      {"id", tokens.size()},
      {"content", "<end>"},
      {"single_word", false},
      {"lstrip", false},
      {"rstrip", false},
      {"normalized", false},
      {"special", true}};
  const Json bytes = {
      {"type", "ByteLevel"},
      {"add_prefix_space", false},
      {"trim_offsets", true},
      {"use_regex", true}};
  const Json json = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", Json::array({special})},
      {"normalizer", nullptr},
      {"pre_tokenizer", bytes},
      {"post_processor", nullptr},
      {"decoder", bytes},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"vocab", vocabulary},
        {"merges", Json::array()}}}};
  return parse_tokenizer_json(json.dump(), "test");
}

std::vector<int32_t> ids_of(const std::vector<uint64_t>& bits) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < bits.size() * 64; ++i) {
    if (bits[i / 64] >> i % 64 & 1) ids.push_back(int32_t(i));
  }
  return ids;
}

std::vector<int32_t> allowed(const TokenMask& mask, TokenMask::Place& place) {
  std::vector<uint64_t> bits;
  mask.allowed(place, bits);
  return ids_of(bits);
}

TEST(TokenMask, AllowsTokensWhoseBytesFit) {
  const Tokenizer tokenizer = tokenizer_of({"a", "b", "ab", "abc", "ba", "c", "bc", "abx"});
  const auto trie = std::make_shared<const TokenTrie>(tokenizer);
  const TokenMask mask(trie, grammar::regex_grammar("(ab)*c?"));
  TokenMask::Place place = mask.start();
  EXPECT_TRUE(place.complete());
  EXPECT_EQ(allowed(mask, place), (std::vector<int32_t>{0, 2, 3, 5}));  // a ab abc c
  EXPECT_FALSE(mask.advance(place, 1));
  EXPECT_FALSE(mask.advance(place, 8));  // the special token
  EXPECT_FALSE(mask.advance(place, 99));
  EXPECT_TRUE(mask.advance(place, 0));
  EXPECT_FALSE(place.complete());
  EXPECT_EQ(allowed(mask, place), (std::vector<int32_t>{1, 4, 6}));  // b ba bc
  EXPECT_TRUE(mask.advance(place, 6));
  EXPECT_TRUE(place.complete());
  EXPECT_FALSE(place.can_go_on());
  EXPECT_TRUE(allowed(mask, place).empty());
}

// Halves of characters are tokens of their own in a byte tokenizer.
TEST(TokenMask, HalvesOfCharacters) {
  const auto trie = std::make_shared<const TokenTrie>(byte_tokenizer());
  const TokenMask mask(trie, grammar::regex_grammar("[\xc3\xa0-\xc3\xa2\xe2\x82\xac]"));
  TokenMask::Place place = mask.start();
  EXPECT_EQ(allowed(mask, place), (std::vector<int32_t>{0xc3, 0xe2}));
  EXPECT_TRUE(mask.advance(place, 0xc3));
  EXPECT_FALSE(place.complete());
  EXPECT_EQ(allowed(mask, place), (std::vector<int32_t>{0xa0, 0xa1, 0xa2}));
}

// Against advancing by each token alone, along random texts, with random tokens of several bytes.
RC_GTEST_PROP(TokenMask, IsWhatEachTokenAloneDoes, (uint64_t seed)) {
  std::mt19937_64 random(seed);
  std::set<std::string> tokens;
  for (const char c : std::string("{}[]\":,0123456789abtruefalsn\\")) tokens.insert({c});
  for (int i = 0; i < 150; ++i) {
    std::string token;
    for (uint64_t n = 2 + random() % 4; n > 0; --n)
      token += "{}[]\":,012abtruefalsn\\"[random() % 22];
    tokens.insert(token);
  }
  const Tokenizer tokenizer = tokenizer_of({tokens.begin(), tokens.end()});
  const auto trie = std::make_shared<const TokenTrie>(tokenizer);
  const TokenMask mask(trie, grammar::json_object_grammar());
  TokenMask::Place place = mask.start();
  for (int step = 0; step < 30 && place.can_go_on(); ++step) {
    std::vector<int32_t> expected;
    for (int32_t id = 0; id < tokenizer.vocabulary(); ++id) {
      TokenMask::Place copy = place;
      if (mask.advance(copy, id)) expected.push_back(id);
    }
    const std::vector<int32_t> got = allowed(mask, place);
    RC_ASSERT(got == expected);
    RC_ASSERT(!got.empty());
    RC_ASSERT(mask.advance(place, got[random() % got.size()]));
  }
}

// The cache starts anew when it is full; places outlive that.
TEST(TokenMask, APlaceOutlivesTheCache) {
  const auto trie = std::make_shared<const TokenTrie>(byte_tokenizer());
  const TokenMask mask(trie, grammar::regex_grammar("(ab?){500}"), 10000);
  TokenMask::Place place = mask.start(), old = place;
  ASSERT_TRUE(mask.advance(old, 'a'));
  const std::vector<int32_t> expected = {'a', 'b'};
  EXPECT_EQ(allowed(mask, old), expected);
  for (int i = 0; i < 499; ++i) {
    ASSERT_TRUE(mask.advance(place, 'a'));
    ASSERT_EQ(allowed(mask, place), expected) << i;
    ASSERT_EQ(allowed(mask, old), expected) << i;
  }
  ASSERT_TRUE(mask.advance(place, 'a'));
  EXPECT_TRUE(place.complete());
  EXPECT_EQ(allowed(mask, place), (std::vector<int32_t>{'b'}));
  EXPECT_TRUE(mask.advance(old, 'b'));
}

TEST(TokenMask, OfGpt2) {
  const std::string folder = test_data("tokenizers/gpt2");
  HORNER_NEED(folder);
  const Tokenizer tokenizer = load_tokenizer(folder);
  const auto trie = std::make_shared<const TokenTrie>(tokenizer);
  const TokenMask mask(
      trie,
      grammar::schema_grammar(
          parse_json(R"({"properties":{"name":{"type":"string"}},"required":["name"]})", "")
      )
  );
  TokenMask::Place place = mask.start();
  const std::string text = R"({"name": "Ada \u00e9)"
                           "\xc3\xa9"
                           R"("})";
  for (const int32_t id : tokenizer.encode(text)) {
    const std::vector<int32_t> ids = allowed(mask, place);
    EXPECT_TRUE(std::binary_search(ids.begin(), ids.end(), id)) << tokenizer.token(id);
    ASSERT_TRUE(mask.advance(place, id)) << tokenizer.token(id);
  }
  EXPECT_TRUE(place.complete());
  EXPECT_FALSE(place.can_go_on());
}

}  // namespace
}  // namespace horner
