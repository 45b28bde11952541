#include <gtest/gtest.h>

#include "core/device.h"

int main(int argc, char** argv) {
  horner::leave_out_amx();
  horner::open_cuda();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
