#include "core/hash.h"

#include <gtest/gtest.h>

namespace horner {
namespace {

// What xxh128sum of xxHash 0.8 prints.
TEST(Hash, KnownAnswers) {
  EXPECT_EQ(xxh128(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(xxh128("abc"), "06b05ab6733a618578af5f94892f3950");
}

}  // namespace
}  // namespace horner
