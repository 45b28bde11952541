#include "report/rich_text.h"

#include <gtest/gtest.h>

namespace horner {
namespace {

TEST(RichText, CodeLinksAndPowers) {
  EXPECT_EQ(rich("closed forms, `a < b^2`."), "closed forms, <code>a &lt; b^2</code>.");
  EXPECT_EQ(rich("`a/b,c`"), "<code>a/b,<wbr>c</code>");
  EXPECT_EQ(rich("`x --scale cpu`"), "<code>x <span>--scale</span> cpu</code>");  // one line
  EXPECT_EQ(rich("a ` alone"), "a ` alone");
  EXPECT_EQ(
      rich("Theory (arXiv:2512.11784)"),
      "Theory (<a href=\"https://arxiv.org/abs/2512.11784\">arXiv:2512.11784</a>)"
  );
  EXPECT_EQ(rich("arXiv:251.11784, 10:30"), "arXiv:251.11784, 10:30");
  EXPECT_EQ(rich("gla:heads=2,norm=l2"), "gla:<wbr>heads=2,<wbr>norm=l2");  // a phone is narrow
  EXPECT_EQ(raised("falls like L^-1, T^12, e^x"), "falls like L⁻¹, T¹², e^x");
  EXPECT_EQ(rich("<b>^2"), "&lt;b&gt;²");
}

// A line of a narrow screen does not end between a number and its unit.
TEST(RichText, NumbersKeepTheirUnits) {
  EXPECT_EQ(
      rich("7 % of 4 KiB, +0.1 ± 0.2, from T = 64 on"),
      "7\u00a0% of 4\u00a0KiB, +0.1\u00a0±\u00a00.2, from T\u00a0=\u00a064 on"
  );
  EXPECT_EQ(rich("set mean = 3, `4 KiB`"), "set mean = 3, <code>4 KiB</code>");
}

}  // namespace
}  // namespace horner
