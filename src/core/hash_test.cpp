#include "core/hash.h"

#include <gtest/gtest.h>

namespace horner {
namespace {

// Published test vectors of FNV-1a 64.
TEST(Hash, KnownAnswers) {
  EXPECT_EQ(hash_of(""), "cbf29ce484222325");
  EXPECT_EQ(hash_of("a"), "af63dc4c8601ec8c");
  EXPECT_EQ(hash_of("foobar"), "85944171f73967e8");
}

}  // namespace
}  // namespace horner
