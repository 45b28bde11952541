#include "report/table.h"

#include <gtest/gtest.h>

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

TEST(Table, LinesOfAWidth) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrapped_lines("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(wrapped_lines("order=4,norm=l2", 9), (Lines{"order=4,", "norm=l2"}));
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
