#include "report/answers.h"

#include <gtest/gtest.h>

#include <cmath>

namespace horner {
namespace {

TEST(Answers, MarkdownEscapesEverything) {
  KnownAnswer a;
  a.run = a.expected = a.device = a.precision = a.commit = a.date = "<img src=x onerror=y>|`b`";
  a.measured = std::nan("");
  const std::string text = answers_markdown({a}, "./horner report '`<script>`'");
  EXPECT_EQ(text.find("<img"), std::string::npos) << text;
  EXPECT_EQ(text.find(" `b`"), std::string::npos) << text;
  EXPECT_NE(text.find("`` ./horner report '`<script>`' ``"), std::string::npos) << text;
}

TEST(Answers, JsonKeepsWhatWasExpected) {
  KnownAnswer a;
  a.run = "r";
  a.expected = "test/accuracy >= 0.5";
  a.measured = .75;
  a.holds = true;
  const Json row = answers_json({a})[0];
  EXPECT_EQ(row["expected"], a.expected);
  EXPECT_EQ(row["measured"], .75);
}

}  // namespace
}  // namespace horner
