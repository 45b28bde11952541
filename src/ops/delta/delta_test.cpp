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

// One decay for all keys of a head is the decay of the head: the order of decay and erasure does not matter then.
TEST(Delta, EqualDecaysOfAllKeysAreTheHeads) {
  Variant variant;
  variant.gate = "head";
  Inputs in = sample_inputs({find_op("delta"), variant, {.T = 23}, at::kCPU, 5}, at::kDouble);
  Options o;
  o.final_state = true;
  for (const char* form : {"recurrent", "parallel", "chunked"}) {
    o.form = form;
    o.chunk = 8;
    Inputs keys = in;
    keys.g = in.g.unsqueeze(-1).expand_as(in.k);
    const Result head = run(find_op("delta"), in, {}, o), key = run(find_op("delta"), keys, {}, o);
    EXPECT_LT(relative_error(key.o, head.o), 1e-12) << form;
    EXPECT_LT(relative_error(key.state.parts[0], head.state.parts[0]), 1e-12) << form;
  }
}

// A key that decays at once is forgotten before the error is formed: diag(a) comes before I - beta k^T k.
TEST(Delta, DecaysBeforeItErases) {
  Inputs in;
  in.k = at::tensor({0.6, 0.8}, at::kDouble).view({1, 1, 1, 2});
  in.q = in.k;
  in.v = at::zeros({1, 1, 1, 1}, at::kDouble);
  in.beta = at::ones({1, 1, 1}, at::kDouble);
  in.g = at::tensor({-INFINITY, 0.0}, at::kDouble).view({1, 1, 1, 2});
  const State S{{at::tensor({5.0, 1.0}, at::kDouble).view({1, 1, 2, 1})}};
  Options o;
  o.final_state = true;
  for (const char* form : {"recurrent", "parallel", "chunked"}) {
    o.form = form;
    const at::Tensor left = run(find_op("delta"), in, S, o).state.parts[0].flatten();
    EXPECT_NEAR(left[0].item<double>(), -0.48, 1e-15) << form;  // 0 - 0.6 (0.8 * 1)
    EXPECT_NEAR(left[1].item<double>(), 1 - 0.64, 1e-15) << form;
  }
}

}  // namespace
}  // namespace horner
