#include "report/html.h"

#include <gtest/gtest.h>

#include "report/assets.h"

namespace horner {
namespace {

// A caption takes the width of the page, not that of its table; a dot stays beside its name.
TEST(Html, CaptionsAndNames) {
  SortTable table{{"mixer"}, {{{.text = "taylor:order=2", .colour = 1}}}};
  table.caption = "what it shows";
  const std::string text = sortable(table);
  EXPECT_EQ(text.rfind("<p class=\"caption\">what it shows</p>", 0), 0u) << text;
  EXPECT_NE(text.find("</i>taylor:</span><wbr>order=2"), std::string::npos) << text;
  EXPECT_NE(code("./horner x\n--out y").find("\n<span>--out</span> y"), std::string::npos);
}

TEST(Html, EverythingIsEscaped) {
  const std::string bad = "</script><script>alert(1)</script>";
  Page page{bad, bad, {bad}, {{bad, ""}}, {{bad, bad}}};
  page.sections[0].body = paragraph(bad) + list({bad}) + code(bad) +
                          sortable({{bad}, {{{bad}}}, bad, {bad}}) +
                          figure(Chart{bad, {bad}, {bad}, {}}, bad) + folded(bad, "");
  const std::string text = html(page);
  EXPECT_EQ(text.find("alert(1)</script>"), std::string::npos);
  EXPECT_NE(text.find("&lt;script&gt;alert(1)"), std::string::npos);
}

TEST(Html, TableKeepsNumbersToSortBy) {
  const std::string text = sortable({{"mixer", "state"}, {{{"gla"}, cell_bytes(16384)}}, ""});
  EXPECT_NE(
      text.find("<td>gla</td><td class=\"number\" data-n=\"16384\">16\u00a0KiB</td>"),
      std::string::npos
  );
  EXPECT_EQ(cell_interval(.5, .25).text, "0.5000 ± 0.2500");
  EXPECT_EQ(cell_interval(-.5, .25).text, "-0.5000 ± 0.2500");
  EXPECT_EQ(cell_interval(-1e-9, 0).text, "0.0000 ± 0.0000");
}

// On a phone a table with sentences has a line per cell, after the name of its column.
TEST(Html, SentencesStackOnAPhone) {
  const std::string sentence(41, 'x');
  const std::string text = sortable({{"claim", "why"}, {{{"orders"}, {sentence}}}});
  EXPECT_NE(text.find("<table class=\"sorts stacks\">"), std::string::npos);
  EXPECT_NE(text.find("<td data-column=\"claim\">orders</td>"), std::string::npos);
  EXPECT_EQ(sortable({{"claim"}, {{{"orders"}}}}).find("stacks"), std::string::npos);
}

TEST(Html, TokensTellTheirRoles) {
  const std::string text = boxes({{"7", "", "key"}, {"9", "", "value"}, {"7", "9", "key"}}, "");
  EXPECT_NE(text.find("<li class=\"value\"><small>value</small><b>9</b></li>"), std::string::npos);
  EXPECT_EQ(boxes({{"7"}}, "").find("<small>"), std::string::npos);
}

// The hashes are those of the text between the tags, or a browser would run nothing.
TEST(Html, OnlyItsOwnScriptAndStylesRun) {
  const std::string text = html({"t", "v", {}, {}, {}});
  EXPECT_EQ(text.find("unsafe-inline"), std::string::npos);
  EXPECT_NE(text.find("script-src " + policy_hash(page_js)), std::string::npos);
  EXPECT_NE(text.find("<script>" + std::string(page_js.text) + "</script>"), std::string::npos);
  EXPECT_NE(text.find("<style>" + std::string(page_css.text) + "</style>"), std::string::npos);
  // echo -n abc | openssl dgst -sha256 -binary | base64
  const Asset abc{"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"};
  EXPECT_EQ(policy_hash(abc), "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='");
}

TEST(Html, ChartsAreDrawnForScreensAndPhones) {
  const Chart chart{"t", {"x"}, {"y"}, {{"a", {{0, 1}, {1, 2}}}, {"b", {{0, 2}, {1, 1}}}}};
  const std::string text = figure(chart);
  EXPECT_NE(text.find("class=\"picture wide\" viewBox=\"0 0 800 "), std::string::npos);
  EXPECT_NE(text.find("class=\"picture narrow\" viewBox=\"0 0 360 "), std::string::npos);
  const std::string narrow = svg(chart, Width::narrow);
  EXPECT_EQ(narrow.find("class=\"name\""), std::string::npos);  // in the legend instead
  EXPECT_NE(narrow.find(">b</text>"), std::string::npos);
}

TEST(Html, RowsAndLinesShareAKey) {
  const std::string row = sortable({{"mixer"}, {{{"gla"}}}, "", {"gla"}});
  EXPECT_NE(row.find("<tr data-key=\"gla\">"), std::string::npos);
  const Chart chart{"t", {"x"}, {"y"}, {{"gla", {{0, 1}}}, {"b", {{0, 2}}}}};
  EXPECT_NE(svg(chart).find("data-key=\"gla\""), std::string::npos);
}

TEST(Html, NothingFromTheNetwork) {
  const std::string text = html({"t", "v", {}, {}, {}});
  EXPECT_NE(text.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(text.find("https://"), std::string::npos);
}

}  // namespace
}  // namespace horner
