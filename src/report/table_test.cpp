#include "report/table.h"

#include <gtest/gtest.h>

#include <sstream>

#include "core/number.h"
#include "report/terminal.h"

namespace horner {
namespace {

TEST(Table, BytesAsPeopleReadThem) {
  EXPECT_EQ(short_bytes(512), "512 B");
  EXPECT_EQ(short_bytes(16 * 1024), "16 KiB");
  EXPECT_EQ(short_bytes(20.5 * 1024 * 1024), "20.5 MiB");
  EXPECT_EQ(short_bytes(999.0 * 1024 * 1024), "999 MiB");
  EXPECT_EQ(short_bytes(1280.0 * 1024 * 1024), "1.25 GiB");
}

TEST(Table, WhatRoundsToZeroHasNoSign) {
  EXPECT_EQ(signed_number(0.25, 2), "+0.25");
  EXPECT_EQ(signed_number(-0.25, 2), "-0.25");
  for (const double x : {0.0, -0.0, 4e-4, -4e-4}) EXPECT_EQ(signed_number(x, 3), "0.000");
}

TEST(Table, FitsATerminal) {
  const Table table{
      {"mixer", "equation", "state"},
      {{"gla", "S_t = diag(a_t) S_{t-1} + k_t^T v_t, o_t = q_t S_t", "2 MiB"},
       {"taylor:order=4,position.kind=none", "o_t", "1 KiB"}}};
  for (const size_t most : {60, 40, 34}) {
    const std::string text = table.text(most);
    size_t start = 0, lines = 0;
    for (size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1, ++lines)
      EXPECT_LE(end - start, most) << text;
    EXPECT_GT(lines, 4u);  // cells were broken
  }
  std::string whole;  // and nothing is lost
  for (const char c : table.text(40))
    if (c != ' ' && c != '\n') whole += c;
  EXPECT_NE(whole.find("2MiB"), std::string::npos);
  EXPECT_NE(table.text(40).find("1 KiB"), std::string::npos);
  EXPECT_EQ(table.text(1000), table.text());
}

// Ten columns on a terminal of 80: two tables with whole words, not one with parts of words.
TEST(Table, WhatDoesNotFitFollowsInATableOfItsOwn) {
  const Table table{
      {"mixer",
       "accuracy",
       "difference",
       "state",
       "smaller from T",
       "faster from T",
       "parameters",
       "lr",
       "train tok/s",
       "decode tok/s"},
      {{"softmax:position.kind=none",
        "0.999",
        "reference",
        "64.53 KiB",
        "-",
        "-",
        "49408",
        "0.005",
        "12.3 k",
        "820"},
       {"taylor:order=2,position.kind=none",
        "0.998",
        "-0.001 ± 0.003 none shown",
        "41.14 KiB",
        "82",
        "not resolved",
        "49408",
        "0.005",
        "12.3 k",
        "820"}}};
  const std::string text = table.text(80);
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one);) EXPECT_LE(columns_of(one), 80u) << text;
  for (const char* whole :
       {"accuracy",
        "-0.001 ± 0.003",
        "none shown",
        "64.53 KiB",
        "not resolved",
        "position.kind=none",
        "order=2,",
        "parameters",
        "train tok/s",
        "decode tok/s"})
    EXPECT_NE(text.find(whole), std::string::npos) << whole << "\n" << text;
  const size_t second = text.find("\n\nmixer ");
  ASSERT_NE(second, std::string::npos) << text;
  EXPECT_NE(text.find("position.kind=none", second), std::string::npos);
  EXPECT_EQ(table.text(200).find("\n\n"), std::string::npos);
}

TEST(Table, LinesOfAWidth) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrapped_lines("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(wrapped_lines("order=4,norm=l2", 9), (Lines{"order=4,", "norm=l2"}));
  EXPECT_EQ(wrapped_lines("softmax:norm=none", 9), (Lines{"softmax:", "norm=none"}));
  EXPECT_EQ(
      wrapped_lines("about -0.1 ± 0.2 or 4 .. 8", 11), (Lines{"about", "-0.1 ± 0.2", "or 4 .. 8"})
  );
  EXPECT_EQ(wrapped_lines("abcdefgh", 3), (Lines{"abc", "def", "gh"}));
  EXPECT_EQ(wrapped_lines("\u00b1\u00b1\u00b1", 2), (Lines{"\u00b1\u00b1", "\u00b1"}));
  EXPECT_EQ(wrapped_lines("", 3), (Lines{""}));
}

TEST(Terminal, LaterLinesAreIndented) {
  EXPECT_EQ(wrapped("  one two three four", 11, 4), "  one two\n    three\n    four");
  EXPECT_EQ(wrapped("  --a {x|yy|zzz}", 8, 4), "  --a\n    {x|\n    yy|\n    zzz}");
  EXPECT_EQ(wrapped("short", 11, 4), "short");
  EXPECT_EQ(wrapped("as it is", 0, 4), "as it is");
}

TEST(Terminal, AClippedLineKeepsWholeLetters) {
  EXPECT_EQ(clipped("step 1 \u00b1 2", 8), "step 1 \u00b1");
  EXPECT_EQ(clipped("step", 8), "step");
  EXPECT_EQ(clipped("step", 0), "step");
}

TEST(Table, MarkdownShowsTextAsItIs) {
  EXPECT_EQ(
      markdown_text("<b>|x|</b> a_b *c* [d](e)\n`f`"),
      "&lt;b&gt;\\|x\\|&lt;/b&gt; a_b \\*c\\* \\[d\\](e) \\`f\\`"
  );
  EXPECT_EQ(markdown_code("a"), "`a`");
  EXPECT_EQ(markdown_code("a`` b"), "``` a`` b ```");
  const Table table{{"a", "b"}, {{markdown_text("x|y"), "p|q"}}};
  EXPECT_NE(table.markdown().find("| x\\|y | p\\|q |"), std::string::npos);
}

}  // namespace
}  // namespace horner
