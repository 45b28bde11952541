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
        std::string(error.what()).substr(0, 58),
        "config.json: not JSON: parse error at line 2, column 8: sy"
    );
  }
}

TEST(Json, DepthDoesNotUseTheStack) {
  const std::string open(1'000'000, '['), close(1'000'000, ']');
  EXPECT_THROW(parse_json(open, "f"), DataError);
  EXPECT_TRUE(parse_json(open + close, "f").is_array());
}

TEST(Json, KnowsUtf8) {
  EXPECT_TRUE(is_utf8("žluť"));
  EXPECT_FALSE(is_utf8("\xff"));
  EXPECT_EQ(to_line("\xff"), "\"\uFFFD\"");
}

}  // namespace
}  // namespace horner
