#include "train/expect.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/check.h"

namespace horner {
namespace {

TEST(Expect, ComparesScoresOfARun) {
  TrainResult r;
  r.metric = "loss";
  r.test.values = {{"late accuracy", 0.5}, {"loss", 1.9}};
  r.valid.values = {{"loss", 1.7}};
  r.lengths[512].values = {{"accuracy", 0.25}};
  r.curve = {{10, 3, 2.5}, {20, 2, 1.48}, {30, 1, std::nan("")}, {40, 1, 1.7}};
  r.options.expect = {
      "test/late accuracy >= 0.5",
      "test/late accuracy >= 0.6",
      "test_T512/accuracy <= 0.3",
      "valid/best = 1.47 +- 0.02",
      "valid/loss = 1.47 +- 0.02",
      "test_T64/accuracy <= 1"};
  const std::vector<std::pair<double, bool>> expected = {
      {0.5, true}, {0.5, false}, {0.25, true}, {1.48, true}, {1.7, false}, {std::nan(""), false}};
  const std::vector<Answer> list = answers(r);
  ASSERT_EQ(list.size(), expected.size());
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i].expected, r.options.expect[i]);
    EXPECT_EQ(list[i].holds, expected[i].second) << list[i].expected;
    EXPECT_TRUE(list[i].measured == expected[i].first || std::isnan(expected[i].first));
  }
}

TEST(Expect, RefusesWhatItCannotRead) {
  for (const char* text :
       {"accuracy >= 1",
        "tset/accuracy >= 1",
        "test_T/accuracy >= 1",
        "test_512/accuracy >= 1",
        "test/ >= 1",
        "test/accuracy",
        "test/accuracy > 1",
        "test/accuracy >= high",
        "test/accuracy >= 1 2",
        "test/loss = 1",
        "test/loss = 1 +- x",
        "test/loss >= 1 +- 2"})
    EXPECT_THROW(Bound::parse(text), UsageError) << text;
}

}  // namespace
}  // namespace horner
