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
      "<msubsup><mi>k</mi><mpadded voffset=\"-.2em\"><mrow><mi>t</mi></mrow></mpadded><mrow><mo>⊤</"
      "mo></mrow></msubsup><mi>v</mi>"
  );
  EXPECT_EQ(
      line("S_{n<=1}"),
      "<msub><mi>S</mi><mpadded voffset=\"-.2em\"><mrow><mi>n</mi><mo>≤</mo><mn>1</mn></mrow></"
      "mpadded></msub>"
  );
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

TEST(Maths, Tex) {
  EXPECT_EQ(tex("k_t^T v"), "k_{t }^{\\top }v ");
  EXPECT_EQ(
      tex("o_t = q_t S_t/sqrt K, a = 1 - 2^{-5-h}"),
      "o_{t }=q_{t }S_{t }/\\sqrt{K },\\quad a =1-2^{-5-h }"
  );
  EXPECT_EQ(tex("h = q / max(|q|, 1)"), "h =\\frac{q }{\\mathrm{max}(\\vert q \\vert ,1)}");
  EXPECT_EQ(tex("sum_{n<=4} x^n"), "\\sum_{n \\le 4}x^{n }");
  EXPECT_EQ(tex("phi(x) W1 * e^{-A dt_t}"), "\\phi (x )W_{1}\\odot e^{-A \\Delta_{t }}");
}

TEST(Maths, Prose) {
  EXPECT_EQ(
      tex("sum over the last w tokens of max(x)"),
      "\\sum\\text{ over the last }w \\text{ tokens of }\\mathrm{max}(x )"
  );
  EXPECT_EQ(tex("S_t a recurrence"), "S_{t }\\text{ a recurrence }");
  EXPECT_EQ(tex("S = a S_t"), "S =a S_{t }");  // here a is a letter
  EXPECT_EQ(line("a recurrence"), "<mtext>&nbsp;a recurrence&nbsp;</mtext>");
}

TEST(Maths, TexOfEveryMixer) {
  for (const MixerType& type : mixers()) {
    const std::string text = tex(std::string(type.equation));
    int depth = 0;
    for (const char c : text) {
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      ASSERT_GE(depth, 0) << text;
      ASSERT_NE(c, '|') << text;  // it would end the cell of a table
    }
    EXPECT_EQ(depth, 0) << text;
  }
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
