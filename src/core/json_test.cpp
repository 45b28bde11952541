#include "core/json.h"

#include <gtest/gtest.h>

#include "core/check.h"

namespace horner {
namespace {

TEST(Json, KeepsTheOrderOfKeys) {
  EXPECT_EQ(to_line(parse_json(R"({"b": 1, "a": [2.5, null]})", "f")), R"({"b":1,"a":[2.5,null]})");
}

TEST(Json, MistakesNameTheSourceAndThePlace) {
  try {
    parse_json("{\n  \"a\": x", "config.json");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(
        std::string(error.what()).substr(0, 61),
        "config.json: is not JSON: parse error at line 2, column 8: sy"
    );
  }
}

std::string mistake(const std::string& text) {
  try {
    parse_json(text, "f");
  } catch (const DataError& error) {
    return error.what();
  }
  return "none";
}

TEST(Json, AMistakeInBytesThatAreNoTextIsText) {
  EXPECT_TRUE(is_utf8(mistake("{\"a\xae\": 1}")));
  EXPECT_TRUE(is_utf8(mistake("\xff\xfe")));
  EXPECT_TRUE(is_utf8(mistake("\"" + std::string(89, 'a') + std::string(60, '\xc3') + "\"")));
}

TEST(Json, DepthIsLimited) {
  const auto nested = [](int64_t n, const std::string& open, const std::string& close) {
    std::string text;
    for (int64_t i = 0; i < n; ++i) text += open;
    text += "1";
    for (int64_t i = 0; i < n; ++i) text += close;
    return text;
  };
  for (const int64_t n : {101, 200'000}) {
    EXPECT_EQ(mistake(nested(n, "[", "]")), "f: is nested deeper than 100");
    EXPECT_EQ(mistake(nested(n, "{\"a\":", "}")), "f: is nested deeper than 100");
  }
  EXPECT_EQ(mistake(nested(100, "[", "]")), "none");
  EXPECT_EQ(mistake(std::string(1'000'000, '[')), "f: is nested deeper than 100");
}

TEST(Json, AKeyStandsOnce) {
  EXPECT_EQ(mistake(R"({"a": {"b": 1}, "b": 2})"), "none");
  EXPECT_EQ(mistake(R"({"a": 1, "a": 2})"), "f: has the key \"a\" twice");
}

// 40 seconds when each key searched the object.
TEST(Json, ManyKeysTakeLinearTime) {
  std::string text = "{";
  for (int64_t i = 0; i < 200'000; ++i) text += fmt::format("\"k{}\":{},", i, i);
  text.back() = '}';
  const Json json = parse_json(text, "f");
  EXPECT_EQ(json.size(), 200'000u);
  EXPECT_EQ((--json.end()).key(), "k199999");
}

TEST(Json, ReadsWhatNlohmannReads) {
  const std::string text =
      R"({"n":null,"t":true,"i":-3,"u":18446744073709551615,"f":-2.5e-3,"s":"\u00e9","l":[[],{}]})";
  EXPECT_EQ(parse_json(text, "f"), Json::parse(text));
  EXPECT_EQ(to_line(parse_json("7", "f")), "7");
  EXPECT_EQ(mistake("1e999").substr(0, 15), "f: is not JSON:");
}

TEST(Json, KnowsUtf8) {
  EXPECT_TRUE(is_utf8("žluť"));
  EXPECT_FALSE(is_utf8("\xff"));
  EXPECT_EQ(to_line("\xff"), "\"\uFFFD\"");
}

}  // namespace
}  // namespace horner
