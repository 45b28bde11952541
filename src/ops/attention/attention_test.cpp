// What is special to `attention`: the window and its sinks, the fused form, the log-normaliser.
#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "ops/contract.h"

namespace horner {
namespace {

Inputs sample(const Dims& dims) {
  return sample_inputs({find_op("attention"), {}, dims, at::kCPU, 4}, at::kDouble);
}

// A window is softmax under a mask: torch's own attention with that mask.
TEST(Attention, WindowIsMaskedSoftmax) {
  const Inputs in = sample({.B = 2, .T = 31, .H = 4, .G = 2, .K = 8, .V = 8});
  const at::Tensor t = at::arange(31).unsqueeze(1), s = at::arange(31).unsqueeze(0);
  for (const int64_t sinks : {0, 3}) {
    Options o;
    o.window = 7;
    o.sinks = sinks;
    const at::Tensor mask = (s <= t).logical_and((t - s < 7).logical_or(s < sinks));
    const auto heads_first = [](const at::Tensor& x) { return x.transpose(1, 2); };
    const at::Tensor expected = at::scaled_dot_product_attention(
                                    heads_first(in.q),
                                    heads_first(in.k),
                                    heads_first(in.v),
                                    mask,
                                    0.0,
                                    false,
                                    std::nullopt,
                                    true
    )
                                    .transpose(1, 2);
    EXPECT_LT(relative_error(run(find_op("attention"), in, {}, o).o, expected), 1e-13) << sinks;
  }
}

// The state stays as large as window and sinks, wherever the sequence is cut and however long it
// is.
TEST(Attention, WindowKeepsItsSize) {
  const Inputs in = sample({.B = 1, .T = 50, .H = 2, .G = 1, .K = 4, .V = 4});
  Options o;
  o.window = 5;
  o.sinks = 2;
  o.final_state = true;
  const at::Tensor whole = run(find_op("attention"), in, {}, o).o;
  for (const int64_t step : {1, 3, 5, 6, 17}) {
    State state;
    std::vector<at::Tensor> parts;
    for (int64_t t = 0; t < 50; t += step) {
      const int64_t n = std::min(step, 50 - t);
      Inputs some;
      some.q = in.q.narrow(1, t, n);
      some.k = in.k.narrow(1, t, n);
      some.v = in.v.narrow(1, t, n);
      const Result y = run(find_op("attention"), some, state, o);
      state = y.state;
      EXPECT_EQ(state.parts[0].size(2), 5);
      EXPECT_EQ(state.parts[3].size(2), 2);
      parts.push_back(y.o);
    }
    EXPECT_LT(relative_error(at::cat(parts, 1), whole), 1e-13) << "in steps of " << step;
    EXPECT_EQ(state.parts[2].item<int64_t>(), 50);
  }
}

// Rows of one batch may have seen different numbers of tokens.
TEST(Attention, RaggedRows) {
  const Inputs in = sample({.B = 1, .T = 20, .H = 2, .G = 2, .K = 4, .V = 4});
  for (const int64_t window : {0, 6}) {
    Options o;
    o.window = window;
    o.final_state = true;
    Inputs packed = in;
    packed.cu_seqlens = at::tensor({0, 4, 20}, at::kLong);
    const State rows =
        run(find_op("attention"), packed, {}, o).state;  // one row has seen 4, the other 16
    const Inputs next = sample({.B = 2, .T = 3, .H = 2, .G = 2, .K = 4, .V = 4});
    const Result together = run(find_op("attention"), next, rows, o);
    for (const auto& [row, start, length] :
         {std::tuple<int64_t, int64_t, int64_t>{0, 0, 4}, {1, 4, 16}}) {
      Inputs alone;
      for (const Input& x : find_op("attention").inputs) {
        alone.*x.tensor = at::cat(
            {(in.*x.tensor).narrow(1, start, length), (next.*x.tensor).narrow(0, row, 1)}, 1
        );
      }
      const at::Tensor expected = run(find_op("attention"), alone, {}, o).o.narrow(1, length, 3);
      EXPECT_LT(relative_error(together.o.narrow(0, row, 1), expected), 1e-13)
          << window << " " << row;
    }
  }
}

TEST(Attention, HugeScoresStayFinite) {
  Inputs in = sample({.B = 1, .T = 9, .H = 1, .G = 1, .K = 4, .V = 4});
  in.q = 1e4 * in.q;
  Options o;
  o.log_norm = true;
  const Result y = run(find_op("attention"), in, {}, o);
  EXPECT_TRUE(at::isfinite(y.o).all().item<bool>() && at::isfinite(y.norm).all().item<bool>());
}

TEST(Attention, RefusesInOneLine) {
  const Inputs in = sample({});
  Options negative, sinks;
  negative.window = -3;
  sinks.sinks = 2;
  EXPECT_THROW(run(find_op("attention"), in, {}, negative), UsageError);
  EXPECT_THROW(run(find_op("attention"), in, {}, sinks), UsageError);
  try {
    Inputs wrong = in;
    wrong.k = in.k.narrow(3, 0, 2);
    run(find_op("attention"), wrong, {}, {});
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "[attention] k must be (B,T,G,K) = (2,16,2,4), got (2,16,2,2)");
  }
}

}  // namespace
}  // namespace horner
