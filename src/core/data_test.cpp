#include "core/data_test.h"

namespace horner {
namespace {

TEST(TestData, ComesFromTheEnvironmentAlone) {
  const char* folder = std::getenv("HORNER_DATA");
  const std::string before = folder ? folder : "";
  ::unsetenv("HORNER_DATA");
  EXPECT_EQ(test_data("text"), "");
  ::setenv("HORNER_DATA", "/somewhere", 1);
  EXPECT_EQ(test_data("text"), "/somewhere/text");
  folder ? ::setenv("HORNER_DATA", before.c_str(), 1) : ::unsetenv("HORNER_DATA");
}

}  // namespace
}  // namespace horner
