// The README's C++ example, as it stands there: python/tests/test_docs.py compares the two.
#include <gtest/gtest.h>
// begin
#include "ops/op.h"

// middle
TEST(Readme, Example) {
  horner::Inputs in;
  in.q = at::randn({2, 128, 4, 16});               // (B,T,H,K)
  in.k = at::randn({2, 128, 2, 16});               // (B,T,G,K): two states, four query heads
  in.v = at::randn({2, 128, 2, 32});               // (B,T,G,V)
  in.g = at::log_sigmoid(at::randn({2, 128, 2}));  // log-decay per head
  horner::Options options;
  options.final_state = true;
  const horner::Result y = horner::run(horner::find_op("linear"), in, {}, options);
  fmt::print("{} form, state of {} bytes\n", y.form, y.state.bytes());
  // end
  EXPECT_EQ(y.form, "chunked");
  EXPECT_EQ(y.state.bytes(), 2 * 2 * 16 * 32 * 4);
}
