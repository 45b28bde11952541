#include "report/model_page.h"

#include <gtest/gtest.h>

namespace horner {
namespace {

TEST(ModelPage, AWindowIsOfferedToHeadsThatAreNear) {
  ModelExplanation e;
  e.model = "m";
  e.heads.resize(2);
  for (HeadMeasures& h : e.heads) h.inside = .5;
  EXPECT_NE(model_verdict(e).find("at least 95 % in no head. "), std::string::npos);
  e.heads[1].inside = .99;
  EXPECT_NE(
      model_verdict(e).find("at least 95 % in 1 of the heads: there a window would do. "),
      std::string::npos
  );
}

}  // namespace
}  // namespace horner
