#include "core/hash.h"

#include <gtest/gtest.h>

namespace horner {
namespace {

// What xxh128sum prints for the empty input.
TEST(Hash, KnownAnswers) {
  EXPECT_EQ(xxh128(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_NE(xxh128("a"), xxh128("b"));
}

}  // namespace
}  // namespace horner
