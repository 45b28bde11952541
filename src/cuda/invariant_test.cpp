#include "cuda/invariant.h"

#include <gtest/gtest.h>

namespace horner::cuda {
namespace {

TEST(TimeParts, FillAGpuOfAnySize) {
  for (const int room :
       {58,
        108,
        132,
        264}) {  // an L4, A100, H100 or H200, two blocks on each of 132 multiprocessors
    for (const int64_t blocks : {1, 4, 16, 33}) {
      const int parts = time_parts(blocks, room, 4096);
      EXPECT_LE(parts * blocks, room);
      EXPECT_GE(2 * parts * blocks, room) << room << " " << blocks;
    }
  }
}

TEST(TimeParts, AreNeitherShortNorEmpty) {
  EXPECT_EQ(time_parts(1, 132, 31), 1);
  EXPECT_EQ(time_parts(1, 132, 32), 2);
  EXPECT_EQ(time_parts(132, 132, 4096), 1);
  for (int64_t chunks = 1; chunks < 3000; ++chunks) {
    const int64_t parts = time_parts(1, 132, chunks), each = (chunks + parts - 1) / parts;
    EXPECT_GE(each, std::min<int64_t>(chunks, 16));
    EXPECT_LT((parts - 1) * each, chunks);
  }
}

TEST(TimeParts, AreOneWhereTheBatchMustNotMatter) {
  ::setenv("HORNER_BATCH_INVARIANT", "1", 1);
  EXPECT_EQ(time_parts(1, 132, 4096), 1);
  ::unsetenv("HORNER_BATCH_INVARIANT");
}

}  // namespace
}  // namespace horner::cuda
