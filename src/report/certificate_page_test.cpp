#include "report/certificate_page.h"

#include <gtest/gtest.h>

#include "report/palette.h"

namespace horner {
namespace {

TextScore score(double kl) {
  TextScore s;
  s.tokens = 10;
  s.against = TextAgainst{.nats = 1, .same_top = .5, .kl = {kl, .001, 4}};
  s.by_position = {{0, 8, 8, 1, kl}, {8, 16, 8, 1, kl}};
  return s;
}

Certificate certificate() {
  Certificate c;
  c.teacher = "teacher";
  c.to = "gla";
  c.layers = 2;
  c.score = score(.153);
  c.window_only = score(.023);
  c.states = {{128, 1024, 4096}};
  return c;
}

TEST(CertificatePage, ConvertedHasTheColourOfItsMixer) {
  const std::string text = html(certificate_page(certificate()));
  const std::string group =
      "<g class=\"" + colour_class(mixer_colour("gla")) + "\" data-key=\"converted\">";
  EXPECT_NE(text.find(group), std::string::npos);
  EXPECT_NE(text.find("KL in nats, lower is better"), std::string::npos);
  EXPECT_NE(text.find("<math"), std::string::npos);
}

TEST(CertificatePage, SaysWhenTheWindowAloneIsBetter) {
  Certificate c = certificate();
  EXPECT_NE(
      certificate_verdict(c).find("Its window alone is nearer to the teacher (KL 0.023"),
      std::string::npos
  );
  c.window_only = score(.2);
  EXPECT_EQ(certificate_verdict(c).find("window alone"), std::string::npos);
}

// Green: as near as 4-bit weights. Red: its window alone would be nearer.
TEST(CertificatePage, TheVerdictHasItsColour) {
  Certificate c = certificate();
  EXPECT_EQ(certificate_page(c).tone, Tone::bad);
  c.window_only = score(.2);
  EXPECT_EQ(certificate_page(c).tone, Tone::open);
  c.score = score(.02);
  EXPECT_EQ(certificate_page(c).tone, Tone::good);
}

// A map's cell near 0 is pale on white and dark on black.
TEST(CertificatePage, MapsAreReadByTheirNumbers) {
  Certificate c = certificate();
  c.heads = {{}};
  const std::string text = html(certificate_page(c));
  EXPECT_NE(text.find("a cell nearer to 0 is better"), std::string::npos);
  EXPECT_EQ(text.find("paler"), std::string::npos);
}

// In a model of three layers every=4 keeps none, and neither does the plan beside it.
TEST(CertificatePage, APlanIsNotComparedWithItself) {
  Certificate c = certificate();
  Planning planning;
  planning.tried.resize(2);  // the plan and every=4, both without a softmax layer
  c.planning = planning;
  const std::string text = html(certificate_page(c));
  EXPECT_NE(text.find("every=4 keeps no layer of so small a model"), std::string::npos);
  EXPECT_EQ(text.find("With 0 softmax layers"), std::string::npos);
  EXPECT_NE(text.find("bytes of state, lower is better"), std::string::npos);
  for (LayerPlan& plan : planning.tried) plan.kept = {1};
  planning.gain = {2e-5, 1e-5, 4};
  c.planning = planning;
  const std::string told =
      "With 1 softmax layer the KL of the plan is 2e-05 nats below that of every=4 (1e-05 .. "
      "3e-05).";
  EXPECT_NE(html(certificate_page(c)).find(told), std::string::npos);
}

TEST(CertificatePage, ALowerPerplexityIsNoGain) {
  Certificate c = certificate();
  c.score.nats.mean = c.score.against->nats + .1;
  EXPECT_EQ(certificate_verdict(c).find("no gain"), std::string::npos);
  EXPECT_EQ(html(certificate_page(c)).find("no gain"), std::string::npos);
  c.score.nats.mean = c.score.against->nats - .2;
  EXPECT_NE(
      certificate_verdict(c).find("perplexity -18.1 % (no gain: this text is foreign"),
      std::string::npos
  ) << certificate_verdict(c);
  const std::string foreign = "teacher&#39;s is no gain: this text is foreign to the teacher.<";
  EXPECT_NE(html(certificate_page(c)).find(foreign), std::string::npos);
  c.steps = {{}};
  c.steps[0].tokens = 10;
  EXPECT_NE(certificate_verdict(c).find("(no gain: training taught"), std::string::npos);
}

TEST(CertificatePage, NoSoftmaxLayerIsSaid) {
  EXPECT_NE(
      html(certificate_page(certificate())).find("<dt>softmax layers</dt><dd><span>none</span>"),
      std::string::npos
  );
}

}  // namespace
}  // namespace horner
