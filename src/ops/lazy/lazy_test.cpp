// Lazy steps are steps.
#include "ops/lazy/lazy.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "core/check.h"
#include "core/thrown_test.h"
#include "ops/contract.h"

namespace horner {
namespace {

TEST(Lazy, StepsAreSteps) {
  for (const Op& op : ops()) {
    for (const Variant& variant : op.variants) {
      if (!variant.options.causal) continue;
      const Dims dims{.B = 2, .T = 11, .H = 4, .G = 2, .K = 5, .V = 6};
      const Inputs in = sample_inputs({op, variant, dims, at::kCPU, 3}, at::kDouble);
      Options o = variant.options;
      o.log_norm = false;
      o.final_state = true;
      const Result whole = run(op, in, {}, o);
      Lazy lazy{.fold = 4};  // two folds, and three tokens that wait
      for (int64_t t = 0; t < dims.T; ++t) {
        const at::Tensor y = lazy_step(op, tokens(op, in, t, 1), lazy, o);
        EXPECT_LT(relative_error(y, whole.o.narrow(1, t, 1)), 1e-11)
            << op.name << ", " << variant.name << ", token " << t;
      }
      EXPECT_EQ(lazy.count, 3);
      const State last = fold(op, lazy, o);
      for (size_t i = 0; i < last.parts.size(); ++i)
        EXPECT_LT(relative_error(last.parts[i], whole.state.parts[i]), 1e-11)
            << op.name << ", " << variant.name;
    }
  }
}

TEST(Lazy, RefusesWhatItCannotTake) {
  const Op& op = find_op("linear");
  const Inputs in =
      sample_inputs({op, {}, {.B = 1, .T = 2, .H = 1, .G = 1}, at::kCPU, 3}, at::kDouble);
  Lazy lazy;
  EXPECT_EQ(
      thrown<UsageError>([&] { lazy_step(op, in, lazy, {}); }),
      "[linear] a lazy step takes one token of a causal op, got T = 2"
  );
  Options both;
  both.causal = false;
  EXPECT_EQ(
      thrown<UsageError>([&] { lazy_step(op, tokens(op, in, 0, 1), lazy, both); }),
      "[linear] a lazy step takes one token of a causal op, got T = 1"
  );
  lazy_step(op, tokens(op, in, 0, 1), lazy, {});
  Inputs other = tokens(op, in, 1, 1);
  for (const Input& input : {kQ, kK, kV})
    other.*input.tensor = (other.*input.tensor).to(at::kFloat);
  EXPECT_EQ(
      thrown<UsageError>([&] { lazy_step(op, other, lazy, {}); }),
      "[linear] a token must have the shape and type of those before it"
  );
}

}  // namespace
}  // namespace horner
