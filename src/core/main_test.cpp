#include <gtest/gtest.h>

#include "core/device.h"

int main(int argc, char** argv) {
  horner::open_cuda();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
