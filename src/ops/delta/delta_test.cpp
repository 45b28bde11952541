// What is special to `delta`: it recalls, it replaces, and with beta = 0 it does nothing.
#include "ops/delta/delta.h"

#include <gtest/gtest.h>

#include "ops/contract.h"

namespace horner {
namespace {

// beta = 1 and orthonormal keys: asking with a key gives exactly the value last written under it.
TEST(Delta, RecallsExactly) {
  const int64_t K = 6, V = 3;
  Inputs in;
  in.k = at::eye(K, at::kDouble).view({1, K, 1, K});
  in.v = at::randn({1, K, 1, V}, at::kDouble);
  in.beta = at::ones({1, K, 1}, at::kDouble);
  in.q = in.k;
  Options o;
  o.final_state = true;
  for (const char* form : {"recurrent", "parallel", "chunked"}) {
    o.form = form;
    o.chunk = 4;
    const Result first = run(find_op("delta"), in, {}, o);
    EXPECT_LT(relative_error(first.state.parts[0].view({K, V}), in.v.view({K, V})), 1e-14) << form;
    Inputs again = in;  // the same keys with other values: nothing of the old ones is left
    again.v = at::randn({1, K, 1, V}, at::kDouble);
    const Result second = run(find_op("delta"), again, first.state, o);
    EXPECT_LT(relative_error(second.state.parts[0].view({K, V}), again.v.view({K, V})), 1e-14)
        << form;
  }
}

TEST(Delta, WithoutWritesKeepsItsState) {
  Inputs in = sample_inputs({find_op("delta"), {}, {.T = 9}, at::kCPU, 1}, at::kDouble);
  in.beta = at::zeros_like(in.beta);
  const State S{{at::randn({2, 2, 4, 4}, at::kDouble)}};
  Options o;
  o.final_state = true;
  EXPECT_TRUE(at::equal(run(find_op("delta"), in, S, o).state.parts[0], S.parts[0]));
}

// beta = 2 reflects: the eigenvalue along the key is -1, so writing zeros twice restores the state.
TEST(Delta, BetaTwoReflects) {
  Inputs in;
  const at::Tensor k = at::randn({1, 1, 1, 4}, at::kDouble);
  in.k = (k / k.norm()).expand({1, 2, 1, 4});
  in.q = in.k;
  in.v = at::zeros({1, 2, 1, 3}, at::kDouble);
  in.beta = at::full({1, 2, 1}, 2.0, at::kDouble);
  const State S{{at::randn({1, 1, 4, 3}, at::kDouble)}};
  Options o;
  o.final_state = true;
  o.form = "chunked";
  const Result y = run(find_op("delta"), in, S, o);
  EXPECT_LT(relative_error(y.state.parts[0], S.parts[0]), 1e-14);
  EXPECT_LT(relative_error(y.o.select(1, 0), -y.o.select(1, 1)), 1e-14);
}

}  // namespace
}  // namespace horner
