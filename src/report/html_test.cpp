#include "report/html.h"

#include <gtest/gtest.h>

namespace horner {
namespace {

TEST(Html, EverythingIsEscaped) {
  const std::string bad = "</script><script>alert(1)</script>";
  Page page{bad, bad, {bad}, {{bad, ""}}, {{bad, bad}}};
  page.sections[0].body = paragraph(bad) + list({bad}) + code(bad) +
                          sortable({{bad}, {{{bad}}}, bad}) + figure("", bad) + folded(bad, "");
  const std::string text = html(page);
  EXPECT_EQ(text.find("alert(1)</script>"), std::string::npos);
  EXPECT_NE(text.find("&lt;script&gt;alert(1)"), std::string::npos);
}

TEST(Html, TableKeepsNumbersToSortBy) {
  const std::string text = sortable({{"mixer", "state"}, {{{"gla"}, cell_bytes(16384)}}, ""});
  EXPECT_NE(
      text.find("<td>gla</td><td class=\"number\" data-n=\"16384\">16 KiB</td>"), std::string::npos
  );
  EXPECT_EQ(cell_interval(.5, .25).text, "0.5000 ± 0.2500");
}

TEST(Html, NothingFromTheNetwork) {
  const std::string text = html({"t", "v", {}, {}, {}});
  EXPECT_NE(text.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(text.find("https://"), std::string::npos);
}

}  // namespace
}  // namespace horner
