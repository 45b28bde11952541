#include "report/maths.h"

#include <gtest/gtest.h>

#include <regex>

#include "mixers/mixer.h"

namespace horner {
namespace {

std::string line(const std::string& equation) {
  const std::string text = maths(equation);
  const size_t start = text.find("<mrow>") + 6;
  return text.substr(start, text.rfind("</mrow></math>") - start);
}

TEST(Maths, ScriptsAndFractions) {
  EXPECT_EQ(
      line("k_t^T v"),
      "<msubsup><mi>k</mi><mrow><mi>t</mi></mrow><mrow><mo>⊤</mo></mrow></msubsup><mi>v</mi>"
  );
  EXPECT_EQ(line("S_{t-1}"), "<msub><mi>S</mi><mrow><mi>t</mi><mo>−</mo><mn>1</mn></mrow></msub>");
  EXPECT_EQ(
      line("a = b / max(c, 1)"),
      "<mi>a</mi><mo>=</mo><mfrac><mrow><mi>b</mi></mrow><mrow><mi>max</mi><mrow><mo>(</mo><mi>c</"
      "mi>"
      "<mo>,</mo><mn>1</mn><mo>)</mo></mrow></mrow></mfrac>"
  );
  EXPECT_EQ(
      line("q.k/sqrt K"), "<mi>q</mi><mo>·</mo><mi>k</mi><mo>/</mo><msqrt><mi>K</mi></msqrt>"
  );
}

TEST(Maths, TextIsEscaped) {
  const std::string text = maths("a<script> & \"b\" = {x, ((");
  EXPECT_EQ(text.find("<script"), std::string::npos);
  EXPECT_NE(text.find("&amp;"), std::string::npos);
}

// Tags nest, and nothing of the ASCII's marks is left over.
TEST(Maths, EveryMixersEquation) {
  const std::regex tags("<(/?)([a-z]+)[^>]*>");
  for (const MixerType& type : mixers()) {
    const std::string text = maths(std::string(type.equation));
    std::vector<std::string> open;
    for (std::sregex_iterator i(text.begin(), text.end(), tags), end; i != end; ++i) {
      if ((*i)[1].length() == 0) {
        open.push_back((*i)[2]);
        continue;
      }
      ASSERT_FALSE(open.empty()) << type.name;
      ASSERT_EQ(open.back(), (*i)[2]) << type.name;
      open.pop_back();
    }
    EXPECT_TRUE(open.empty()) << type.name;
    const std::string shown = std::regex_replace(text, tags, "");
    EXPECT_EQ(shown.find_first_of("_^{}"), std::string::npos) << type.name << ": " << shown;
  }
}

}  // namespace
}  // namespace horner
