#include "report/task_example.h"

#include <gtest/gtest.h>

#include "core/json.h"

namespace horner {
namespace {

size_t box_count(const std::string& text) {
  size_t n = 0;
  for (size_t at = text.find("<li"); at != std::string::npos; at = text.find("<li", at + 1)) ++n;
  return n;
}

// A hundred boxes of padding say nothing.
TEST(TaskExample, LongPaddingIsLeftOut) {
  Json tokens = Json::array({"7", "3", "9"});
  for (int i = 0; i < 100; ++i) tokens.push_back("0");
  Json task = {
      {"name", "listops"},
      {"example", {{"T", 103}, {"next", false}, {"label", 4}, {"tokens", tokens}}}};
  std::string text = task_example(task);
  EXPECT_EQ(box_count(text), 3u + 32u);
  EXPECT_NE(
      text.find("A test example without its end, where every token is 0: the whole belongs to "
                "class 4."),
      std::string::npos
  ) << text;
  Json answers(tokens.size(), nullptr);
  answers.back() = "5";  // a token with an answer is no padding
  task["example"]["answers"] = answers;
  text = task_example(task);
  EXPECT_EQ(box_count(text), 103u);
  EXPECT_EQ(text.find("without its end"), std::string::npos);
}

}  // namespace
}  // namespace horner
