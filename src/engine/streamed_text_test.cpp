#include "engine/streamed_text.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "core/json.h"
#include "core/thrown_test.h"

namespace horner {
namespace {

// What is shown of the pieces, joined by "|"; then what finish() adds.
std::string shown(StreamedText text, const std::vector<std::string>& pieces) {
  std::string all;
  for (const std::string& piece : pieces) all += text.add(piece) + "|";
  return all + text.finish();
}

TEST(StreamedText, ShowsWholeCharacters) {
  EXPECT_EQ(
      shown(StreamedText(), {"Hel", "lo \xc3", "\xa9t", "\xe2", "\x82", "\xac!"}),
      "Hel|lo |\xc3\xa9t||"
      "|\xe2\x82\xac!|"
  );
  EXPECT_EQ(shown(StreamedText(), {"\xf0\x9f\x98", "\x80"}), "|\xf0\x9f\x98\x80|");
}

// The counts of U+FFFD are those of Python's bytes.decode(errors="replace").
TEST(StreamedText, ReplacesWhatIsNoUtf8) {
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(as_utf8("a\x80z"), "a" + bad + "z");
  EXPECT_EQ(as_utf8("\xe2\x82"), bad);
  EXPECT_EQ(as_utf8("\xe2\x82x"), bad + "x");
  EXPECT_EQ(as_utf8("\xc0\xaf"), bad + bad);
  EXPECT_EQ(as_utf8("\xed\xa0\x80"), bad + bad + bad);            // a surrogate
  EXPECT_EQ(as_utf8("\xf4\x90\x80\x80"), bad + bad + bad + bad);  // beyond U+10FFFF
  EXPECT_EQ(as_utf8("\xf0\x9f\x98"), bad);
  EXPECT_EQ(shown(StreamedText(), {"a\xe2", "\x82"}), "a||" + bad);
}

TEST(StreamedText, StopsAcrossPieces) {
  StreamedText text({"\n\nUser:", "END"});
  EXPECT_EQ(text.add("It is\n"), "It is");
  EXPECT_EQ(text.add("\nUse"), "");
  EXPECT_EQ(text.add("less."), "\n\nUseless.");
  EXPECT_EQ(text.add(" \xc3\xa9\n\nUs"), " \xc3\xa9");
  EXPECT_EQ(text.stopped_by(), "");
  EXPECT_EQ(text.add("er: x"), "");
  EXPECT_EQ(text.stopped_by(), "\n\nUser:");
  EXPECT_EQ(text.add("more"), "");
  EXPECT_EQ(text.finish(), "");
}

TEST(StreamedText, TheFirstAndLongestStopCounts) {
  StreamedText text({"bc", "bcd", "c"});
  EXPECT_EQ(text.add("abcd"), "a");
  EXPECT_EQ(text.stopped_by(), "bcd");
  StreamedText repeated({"aab"});
  EXPECT_EQ(repeated.add("aaa"), "a");
  EXPECT_EQ(repeated.add("b"), "");
  EXPECT_EQ(repeated.stopped_by(), "aab");
  EXPECT_EQ(thrown<UsageError>([] { StreamedText({"x", ""}); }), "a stop string is empty");
}

// However the bytes are cut, the text is the same, and each piece is UTF-8.
TEST(StreamedText, AnyCutGivesTheSameText) {
  const std::string bytes = "na\xc3\xafve \xe2\x82\xac\x80 \xf0\x9f\x98\x80 sto\xc3\xa9 st";
  for (const std::string& stop : {"sto\xc3\xa8", "st!", "zz"}) {
    const std::string whole = as_utf8(bytes);
    for (size_t i = 0; i <= bytes.size(); ++i) {
      for (size_t j = i; j <= bytes.size(); ++j) {
        StreamedText text({stop});
        std::string all;
        for (const std::string& piece :
             {bytes.substr(0, i), bytes.substr(i, j - i), bytes.substr(j)}) {
          const std::string part = text.add(piece);
          EXPECT_TRUE(is_utf8(part));
          all += part;
        }
        EXPECT_EQ(all + text.finish(), whole);
      }
    }
  }
}

}  // namespace
}  // namespace horner
