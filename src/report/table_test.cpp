#include "report/table.h"

#include <gtest/gtest.h>

#include "core/number.h"

namespace horner {
namespace {

TEST(Table, BytesAsPeopleReadThem) {
  EXPECT_EQ(short_bytes(512), "512 B");
  EXPECT_EQ(short_bytes(16 * 1024), "16 KiB");
  EXPECT_EQ(short_bytes(20.5 * 1024 * 1024), "20.5 MiB");
  EXPECT_EQ(short_bytes(999.0 * 1024 * 1024), "999 MiB");
  EXPECT_EQ(short_bytes(1280.0 * 1024 * 1024), "1.25 GiB");
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
