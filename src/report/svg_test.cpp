#include "report/svg.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/check.h"
#include "report/palette.h"

namespace horner {
namespace {

TEST(Axis, NiceTicks) {
  const Scale unit = make_scale({"y"}, {0, 1}, 5);
  ASSERT_EQ(unit.ticks.size(), 6u);
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(unit.ticks[size_t(i)], .2 * i, 1e-12);
  const Scale s = make_scale({"y"}, {13, 87}, 5);
  EXPECT_EQ(s.ticks, (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_DOUBLE_EQ(s.place(50), 0.5);
  EXPECT_EQ(make_scale({"y"}, {-3, 4}, 4).ticks, (std::vector<double>{-4, -2, 0, 2, 4}));
  const Scale one = make_scale({"y"}, {7}, 5);
  EXPECT_TRUE(one.low < 7 && one.high > 7);
}

TEST(Axis, LogTicks) {
  const Axis T{"T", true, 2};
  const Scale s = make_scale(T, {64, 1024}, 6);
  EXPECT_EQ(s.ticks, (std::vector<double>{64, 128, 256, 512, 1024}));
  EXPECT_DOUBLE_EQ(s.place(256), 0.5);  // the air is the same on both sides
  EXPECT_FALSE(s.shows(0));
  EXPECT_FALSE(s.shows(std::nan("")));
  const Scale decades = make_scale({"loss", true}, {1e-8, 1}, 5);
  EXPECT_LE(decades.ticks.size(), 6u);
  EXPECT_GE(make_scale({"half-life", true}, {15, 17}, 5).ticks.size(), 3u);
  EXPECT_EQ(tick_text({"state", true, 2, true}, 16384), "16 KiB");
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Axis, BytesHaveTicksOfPowersOfTwo) {
  Axis bytes{"state"};
  bytes.bytes = true;
  for (const double tick : make_scale(bytes, {0, 60000}, 4).ticks)
    EXPECT_EQ(std::fmod(tick, 1024), 0) << tick;
}

// Names of bars on a phone stand above them: no axis crosses a name, and long ones are broken.
TEST(Svg, AxisOfBarsLeavesOutNames) {
  const Bars bars{"t", {"x"}, {{"a", 1}, {std::string(30, 'n') + " " + std::string(30, 'm'), 2}}};
  const std::string narrow = svg(bars, Width::narrow);
  EXPECT_EQ(count(narrow, "class=\"axis\""), 2u);
  EXPECT_NE(narrow.find(">" + std::string(30, 'm') + "</text>"), std::string::npos);
}

TEST(Svg, EscapesEveryText) {
  const std::string bad = "<a href=\"x\">&'\x01\xff";
  EXPECT_EQ(escape(bad), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\xEF\xBF\xBD");
  Chart chart{bad, {bad}, {bad}, {{bad, {{1, 2}, {2, 3}}}, {bad, {{1, 1}}}}, true};
  for (const std::string& picture :
       {svg(chart), svg(Bars{bad, {bad}, {{bad, 1}}}), svg(HeatMap{bad, bad, bad, 1, 1, {1}})}) {
    EXPECT_EQ(picture.find("<a"), std::string::npos);
    EXPECT_EQ(picture.find('\x01'), std::string::npos);
  }
}

TEST(Svg, ChartSkipsWhatAnAxisCannotShow) {
  Chart chart{
      "t", {"x", true}, {"y"}, {{"a", {{0, 1}, {1, 2}, {10, std::nan("")}, {100, 3, 2, 4}}}}};
  const std::string picture = svg(chart);
  EXPECT_EQ(count(picture, "class=\"mark\""), 2u);
  EXPECT_EQ(count(picture, "class=\"error\""), 1u);
  EXPECT_EQ(picture.find("nan"), std::string::npos);
  EXPECT_NE(picture.find("a: x 100, y 3 (2 .. 4)"), std::string::npos);
  chart.y.label = "loss, lower is better";  // a mark tells a number, not its direction
  EXPECT_NE(svg(chart).find("a: x 100, loss 3 (2 .. 4)"), std::string::npos);
  EXPECT_NE(svg(Chart{"empty", {"x"}, {"y"}, {}}).find("</svg>"), std::string::npos);
}

// Names of series that end in one place must not cover each other.
TEST(Svg, NamesStandApart) {
  Chart chart{"t", {"x"}, {"y"}, {}};
  for (const char* name : {"softmax", "taylor", "linear", "gla", "mlstm"})
    chart.series.push_back({name, {{0, 0}, {1, 1}}});
  const std::string picture = svg(chart);
  std::vector<double> places;
  for (size_t at = picture.find("class=\"name\""); at != std::string::npos;
       at = picture.find("class=\"name\"", at + 1)) {
    const size_t y = picture.rfind("y=\"", at);
    places.push_back(std::stod(picture.substr(y + 3)));
  }
  ASSERT_EQ(places.size(), 5u);
  std::sort(places.begin(), places.end());
  for (size_t i = 1; i < places.size(); ++i) EXPECT_GE(places[i] - places[i - 1], 16);
}

// A legend could not tell grey dashed lines apart: on a phone each has its name on it.
TEST(Svg, BaselinesAreNamedOnAPhone) {
  Chart chart{"t", {"x"}, {"y"}, {{"softmax", {{1, .9}, {2, .8}}}, {"gla", {{1, .7}, {2, .6}}}}};
  for (const auto& [name, y] : {std::pair{"chance", .1}, {"shortcut", .12}, {"uniform", .9}}) {
    Line line{.name = name, .points = {{1, y}, {2, y}}, .marks = false, .dashed = true};
    line.colour = kGrey;
    chart.series.push_back(line);
  }
  const std::string narrow = svg(chart, Width::narrow);
  EXPECT_EQ(count(narrow, "class=\"curve dashed\""), 3u);  // no second one in a legend
  EXPECT_EQ(count(narrow, ">uniform<"), 1u);
  EXPECT_EQ(count(narrow, ">shortcut / chance<"), 1u);  // too near each other for two names
  EXPECT_EQ(count(narrow, ">softmax<"), 1u);            // in the legend
}

// Names stand in the order in which their lines end, also where they had to move.
TEST(Svg, NamesKeepTheOrderOfTheirEnds) {
  Chart chart{"t", {"x"}, {"y"}, {}};
  const std::vector<std::pair<const char*, double>> ends = {
      {"third", .02}, {"second", .03}, {"last", 0}, {"first", 1}, {"fourth", .01}};
  for (const auto& [name, y] : ends) chart.series.push_back({name, {{0, .5}, {1, y}}});
  const std::string picture = svg(chart);
  double before = 0;
  for (const char* name : {"first", "second", "third", "fourth", "last"}) {
    const size_t at = picture.find(std::string("class=\"name\">") + name);
    ASSERT_NE(at, std::string::npos) << name;
    const double y = std::stod(picture.substr(picture.rfind(" y=\"", at) + 4));
    EXPECT_GE(y, before + 16) << name;
    before = y;
  }
  EXPECT_LE(before, 360);  // above the ticks
}

// Texts after bars take room only where a bar reaches that far.
TEST(Svg, BarsUseTheWidth) {
  Bars bars{"t", {.label = "place", .low = -1.5, .high = 1.5}, {{"a", -.5}, {"b", .1}}};
  for (Bars::Bar& bar : bars.bars) bar.text = "a text of forty letters, at least so many";
  const std::string picture = svg(bars);
  const size_t tick = picture.find(">1</text>");
  ASSERT_NE(tick, std::string::npos);
  EXPECT_GE(std::stod(picture.substr(picture.rfind("<text x=\"", tick) + 9)), 500);
  for (size_t at = 0; (at = picture.find(bars.bars[0].text, at)) != std::string::npos; ++at) {
    const double left = std::stod(picture.substr(picture.rfind("<text x=\"", at) + 9));
    if (picture[at - 1] == '>') EXPECT_LE(left + 7.4 * 41, 800);
  }
}

// The names beside lines are bold: a wide font takes 9.2 units for a letter of 13 px.
TEST(Svg, NamesAreNotCutOff) {
  const std::string name = "conv:kind=dense gla";
  Chart chart{"t", {"step"}, {"loss"}, {}};
  chart.series.push_back({name, {{0, 0}, {1, 1}}});
  chart.series.push_back({"softmax", {{0, .5}, {1, .2}}});
  const std::string picture = svg(chart);
  const size_t at = picture.find(">" + name + "<"), open = picture.rfind("<text x=\"", at);
  ASSERT_NE(at, std::string::npos);
  EXPECT_LE(std::stod(picture.substr(open + 9)) + 9.2 * double(name.size()), 800);
}

// Names that would take a third of the width stand in a legend below, and the chart keeps all of it.
TEST(Svg, LongNamesStandBelow) {
  Chart chart{"t", {"step"}, {"loss"}, {}};
  chart.series.push_back({"taylor:order=2,position.kind=none", {{0, 0}, {1, 1}}});
  chart.series.push_back({"softmax:position.kind=none", {{0, .5}, {1, .2}}});
  const auto right_end = [](const std::string& picture) {
    const size_t kind = picture.rfind("class=\"axis\""), open = picture.rfind("x2=\"", kind);
    return std::stod(picture.substr(open + 4));
  };
  const std::string below = svg(chart);
  EXPECT_GE(right_end(below), 700);
  EXPECT_EQ(below.find("class=\"name\""), std::string::npos);
  EXPECT_NE(below.find(">taylor:order=2,position.kind=none<"), std::string::npos);
  // Marks have their names beside them in the chart; only what ends at its right edge needs a margin.
  for (Line& line : chart.series) line.points.resize(1);
  chart.series.push_back({"chance", {{0, .1}, {1, .1}}});
  const std::string beside = svg(chart);
  EXPECT_GE(right_end(beside), 650);
  EXPECT_EQ(count(beside, "class=\"name\""), 3u);
}

// On a phone the last tick of an axis of bytes is not cut off, and a fixed end of an axis stays where one value is all there is.
TEST(Svg, TicksStayInThePicture) {
  Chart chart{"t", {"state"}, {"KL"}, {}};
  chart.x.bytes = true;
  chart.y.low = 0;
  chart.series.push_back({"plans", {{65536, 0}, {327680, 0}}});
  const std::string picture = svg(chart, Width::narrow);
  const size_t at = picture.find(">320 KiB<"), open = picture.rfind("<text x=\"", at);
  ASSERT_NE(at, std::string::npos);
  EXPECT_LE(std::stod(picture.substr(open + 9)) + 3.7 * 7, 360);
  EXPECT_EQ(picture.find(">-1<"), std::string::npos);
  EXPECT_NE(picture.find(">1<"), std::string::npos);
}

// A name that stands left of its mark ends there, so that a font wider than expected does not cover the mark.
TEST(Svg, ANameBeforeItsMarkEndsThere) {
  Chart chart{"t", {"x"}, {"y"}, {}};
  chart.series.push_back({"before", {{.5, 1}}});
  chart.series.push_back({"behind", {{.55, 1}}});
  chart.series.push_back({"low", {{0, 0}}});
  chart.series.push_back({"far", {{1, .5}}});
  const std::string picture = svg(chart);
  const size_t name = picture.find(">before<"), open = picture.rfind("<text", name);
  ASSERT_NE(name, std::string::npos);
  EXPECT_NE(picture.substr(open, name - open).find("\"end\""), std::string::npos)
      << picture.substr(open, 120);
}

TEST(Svg, MapAveragesBlocksAndShowsSigns) {
  HeatMap map{"t", "t", "s", 128, 128, std::vector<double>(128 * 128, 0)};
  map.values[0] = 4;                 // block (0,0) of 2 x 2
  map.values[127 * 128 + 127] = -8;  // the last block
  const std::string picture = svg(map);
  EXPECT_EQ(count(picture, "class=\"row\""), 64u);
  EXPECT_EQ(count(picture, "<path class=\"plus\""), 1u);
  EXPECT_EQ(count(picture, "<path class=\"minus\""), 1u);
  EXPECT_NE(picture.find("t 1: most weight on s 1, 1<"), std::string::npos);
  EXPECT_NE(picture.find("t 127: most weight on s 127, -2<"), std::string::npos);
  EXPECT_EQ(count(picture, "<rect class=\"minus\""), 12u);  // the colour bar
  EXPECT_THROW(svg(HeatMap{"t", "t", "s", 2, 2, {1}}), UsageError);
}

TEST(Svg, HeadGridHasACellForEachNumber) {
  HeadGrid grid{"Distance", " tokens", 2, 3, {1, 2, 3, 4, std::nan(""), 11}};
  grid.low = 1;
  grid.high = 11;
  const std::string picture = svg(grid);
  EXPECT_EQ(count(picture, "class=\"cell\""), 5u);  // NaN stays empty
  EXPECT_NE(picture.find("<title>layer 1, head 2: 11 tokens<"), std::string::npos);
  EXPECT_NE(picture.find("fill-opacity=\"0.06\" x=\"44.0\" y=\"44.0\""), std::string::npos);
  EXPECT_THROW(svg(HeadGrid{"d", "", 2, 2, {1}}), UsageError);
  const std::string rows = tiled("all", {picture, picture, picture}, 2);  // each 360 x 136
  EXPECT_NE(rows.find("width=\"736\" height=\"304\""), std::string::npos) << rows.substr(0, 200);
  EXPECT_NE(rows.find("<svg x=\"376\" y=\"0\""), std::string::npos);
  EXPECT_NE(rows.find("<svg x=\"0\" y=\"152\""), std::string::npos);
}

TEST(Svg, FileStandsAlone) {
  const std::string file = svg_file(svg(Chart{"t", {"x"}, {"y"}, {{"a", {{0, 1}, {1, 2}}}}}));
  EXPECT_EQ(file.find("<svg xmlns=\"http://www.w3.org/2000/svg\""), 0u);
  EXPECT_NE(file.find("<style>"), std::string::npos);
}

TEST(Svg, StacksOneBelowTheOther) {
  const std::string one = svg(Bars{"one", {"x"}, {{"a", 1}}}),
                    two = svg(Bars{"two", {"x"}, {{"b", 2}}});
  const std::string all = stacked("both", {one, two});  // each is 34 + 30 + 48 high
  EXPECT_NE(all.find("height=\"224\""), std::string::npos) << all.substr(0, 200);
  EXPECT_NE(all.find("<svg x=\"0\" y=\"112\""), std::string::npos);
}

}  // namespace
}  // namespace horner
