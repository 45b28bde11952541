#include "core/check.h"

#include <gtest/gtest.h>

namespace horner {
namespace {

TEST(Check, ThrowsUsageErrorWithRuleAndValue) {
  try {
    HORNER_CHECK(1 < 0, "[power] order must be at least {}, got {}", 0, -1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[power] order must be at least 0, got -1");
    EXPECT_EQ(error.exit_code, 2);
  }
}

TEST(Check, ArgumentsAreEvaluatedOnlyOnFailure) {
  int count = 0;
  HORNER_CHECK(true, "{}", ++count);
  EXPECT_EQ(count, 0);
}

TEST(Check, EachKindHasItsExitCode) {
  EXPECT_EQ(RunError("x").exit_code, 1);
  EXPECT_EQ(DataError("x").exit_code, 3);
  EXPECT_EQ(ThresholdError("x").exit_code, 4);
  EXPECT_EQ(DeviceError("x").exit_code, 5);
  EXPECT_EQ(InterruptedError("x").exit_code, 130);
}

}  // namespace
}  // namespace horner
