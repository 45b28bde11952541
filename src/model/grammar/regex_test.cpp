#include "model/grammar/regex.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <regex>

#include "core/file.h"
#include "core/thrown_test.h"
#include "model/grammar/sample_test.h"

namespace horner::grammar {
namespace {

// tools/grammar_goldens.py: random strings, and what Python's re says of them.
TEST(Regex, MatchesWhatPythonMatches) {
  const std::string path = "src/model/goldens/regex.json";
  for (const Json& one : parse_json(read_file(path), path)) {
    const Grammar grammar = regex_grammar(one["pattern"].get<std::string>());
    for (const Json& text : one["yes"])
      EXPECT_TRUE(matches(grammar, text.get<std::string>())) << one["pattern"] << " " << text;
    for (const Json& text : one["no"])
      EXPECT_FALSE(matches(grammar, text.get<std::string>())) << one["pattern"] << " " << text;
  }
}

// A random pattern of letters, groups, alternatives and counts.
rc::Gen<std::string> pattern(int depth) {
  using rc::gen::element;
  const auto leaf = element<std::string>("a", "b", "c", "[ab]", "[^a]", ".", "\\d", "(b|)", "xy");
  if (depth == 0) return leaf;
  return rc::gen::exec([=] {
    const std::string left = *pattern(depth - 1), right = *pattern(depth - 1);
    switch (*rc::gen::inRange(0, 4)) {
      case 0: return left + right;
      case 1: return "(" + left + "|" + right + ")";
      case 2:
        return "(?:" + left + ")" + *element<std::string>("*", "+", "?", "{2}", "{1,3}", "{2,}");
      default: return *leaf;
    }
  });
}

RC_GTEST_PROP(Regex, RandomTextsMatchByTheStandardLibrary, ()) {
  const std::string text = *pattern(3);
  const Grammar grammar = regex_grammar(text);
  const std::regex peer(  // without backtracking, which may take for ever
      text,
      std::regex::ECMAScript | std::regex_constants::__polynomial
  );
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const auto sampled = random_text(grammar, seed, 30);
    const bool ascii = sampled && std::all_of(sampled->begin(), sampled->end(), [](char c) {
                         return uint8_t(c) < 0x80;
                       });
    if (ascii) RC_ASSERT(std::regex_match(*sampled, peer));
  }
  const auto other =
      *rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c', 'x', 'y', '1'));
  RC_ASSERT(matches(grammar, other) == std::regex_match(other, peer));
}

TEST(Regex, RefusalsNameThePlace) {
  const auto line = [](std::string_view text) {
    return thrown<UsageError>([&] { regex_grammar(text); });
  };
  const auto at = [](int place, const std::string& what) {
    return fmt::format("the regular expression: character {}: {}", place, what);
  };
  EXPECT_EQ(line("(a)\\1"), at(4, "back references are not supported"));
  EXPECT_EQ(line("\xc3\xa9(?=b)"), at(2, "looking around is not supported"));
  EXPECT_EQ(line("(?<!b)a"), at(1, "looking around is not supported"));
  EXPECT_EQ(line("(?i)a"), at(1, "a group with flags is not supported"));
  EXPECT_EQ(line("a\\b"), at(2, "\\b (the edge of a word) is not supported"));
  EXPECT_EQ(line("\\p{L}"), at(1, "\\p is not supported"));
  EXPECT_EQ(line("a^b"), at(2, "'^' is supported only at the beginning"));
  EXPECT_EQ(line("(a$)"), at(3, "'$' is supported only at the end"));
  EXPECT_EQ(line("a++"), at(3, "possessive repetition is not supported"));
  EXPECT_EQ(line("a**"), at(3, "a repetition is repeated; use a group"));
  EXPECT_EQ(line("*a"), at(1, "there is nothing for '*' to repeat"));
  EXPECT_EQ(line("a{x}"), at(2, "'{' begins no count such as {2,5}; write \\{"));
  EXPECT_EQ(line("a{3,2}"), at(2, "the count ends before it begins"));
  EXPECT_EQ(line("a{99999999999}"), at(2, "a count is more than 100000"));
  EXPECT_EQ(line("(a"), at(1, "'(' has no ')'"));
  EXPECT_EQ(line("a)"), at(2, "')' has no '('"));
  EXPECT_EQ(line("[a"), at(1, "'[' has no ']'"));
  EXPECT_EQ(line("[z-a]"), at(2, "a range of a class ends before it begins"));
  EXPECT_EQ(line("[[:alpha:]]"), at(2, "named classes are not supported"));
  EXPECT_EQ(line("a\\"), at(2, "'\\' stands at the end"));
  EXPECT_EQ(line("\\x4"), at(1, "\\x needs 2 digits"));
  EXPECT_EQ(line("\\ud800"), at(1, "surrogates are not supported"));
  EXPECT_EQ(line("a\xff"), at(2, "is not UTF-8"));
  EXPECT_EQ(
      line("[^\\x00-\\uffff\xf0\x90\x80\x80-\xf4\x8f\xbf\xbf]"),
      "the regular expression: no text satisfies it, or only one that is nested more than 64 deep"
  );
}

TEST(Regex, NothingTakesForEver) {
  const auto line = [](const std::string& text) {
    return thrown<UsageError>([&] { regex_grammar(text); });
  };
  const std::string states =
      "the regular expression: it needs more than 100000 states; make its counts or its lists "
      "shorter";
  const std::string work = "the regular expression: it takes too long to compile; make it simpler";
  EXPECT_EQ(line("(a{1000}){1000}"), states);
  EXPECT_EQ(line("((((){9999}){9999}){9999}){9999}"), states);
  EXPECT_EQ(line("(a|b)*a(a|b){20}"), work);  // 2^20 states if it were made deterministic
  EXPECT_EQ(line("(a?){9999}"), work);
  EXPECT_EQ(
      line(std::string(9999, '(') + std::string(9999, ')')),
      "the regular expression: character 102: groups are nested too deep"
  );
}

// Every prefix of a character's bytes can go on, and only whole characters end a text.
TEST(Regex, HalvesOfCharactersGoOn) {
  const Grammar grammar =
      regex_grammar("(\xc3\xa9|\xe2\x82\xac|[\xf0\x9f\x98\x80-\xf0\x9f\x98\x8f])+");
  for (const std::string text :
       {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf0\x9f\x98\x8f"}) {
    Readings now = first_readings(grammar);
    for (const char byte : text) {
      EXPECT_FALSE(complete(now));
      now = after(grammar, now, uint8_t(byte));
      ASSERT_FALSE(now.empty());
    }
    EXPECT_TRUE(complete(now));
  }
  for (const std::string text :
       {"\xc3", "\xa9", "\xc3\xa8", "\xf0\x9f\x98\x90", "\xe2\x82\xac\xac"})
    EXPECT_FALSE(matches(grammar, text));
  const Grammar any = regex_grammar(".");
  for (const std::string bad :
       {"\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe0\x80\x80"})
    EXPECT_FALSE(matches(any, bad));
}

}  // namespace
}  // namespace horner::grammar
