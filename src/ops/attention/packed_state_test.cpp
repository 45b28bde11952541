// States of a packed batch, made at once: the same as those of each sequence alone.
#include "ops/attention/packed_state.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "ops/contract.h"
#include "ops/packed.h"

namespace horner {
namespace {

const Op& op() { return find_op("attention"); }

Inputs packed(const std::vector<int64_t>& starts, uint64_t seed) {
  const Dims line{.B = 1, .T = starts.back(), .H = 4, .G = 2, .K = 6, .V = 5};
  Inputs in = sample_inputs({op(), {}, line, at::kCPU, seed}, at::kDouble);
  in.cu_seqlens = at::tensor(starts, at::kInt);
  return in;
}

Options with_state(int64_t window, int64_t sinks) {
  Options o;
  o.window = window;
  o.sinks = sinks;
  o.final_state = true;
  return o;
}

constexpr std::pair<int64_t, int64_t> kWindows[] = {{0, 0}, {5, 0}, {5, 3}, {1, 2}, {30, 7}};

void expect_same(const State& a, const State& b) {
  ASSERT_EQ(a.parts.size(), b.parts.size());
  for (size_t i = 0; i < a.parts.size(); ++i)
    EXPECT_TRUE(at::equal(a.parts[i], b.parts[i])) << "part " << i;
}

TEST(AttentionPackedState, IsThatOfEachSequence) {
  // Some sequences are empty, some shorter than the window and the sinks, also after the first call.
  const Inputs first = packed({0, 1, 9, 9, 20}, 1), second = packed({0, 12, 13, 15, 15}, 2);
  for (const auto& [window, sinks] : kWindows) {
    const Options o = with_state(window, sinks);
    const State begun = run(op(), first, {}, o).state;
    expect_same(attention_packed_state(first, {}, o, 11), begun);
    expect_same(attention_packed_state(second, begun, o, 12), run(op(), second, begun, o).state);
  }
}

TEST(AttentionPackedState, KeysAreTheFilledSlotsThenTheTokens) {
  const std::vector<int64_t> starts = {0, 12, 13, 15, 15};
  const Inputs first = packed({0, 1, 9, 9, 20}, 1), second = packed(starts, 2);
  for (const int64_t window : {0, 5}) {
    const State state = run(op(), first, {}, with_state(window, 0)).state;
    const PackedKeys keys = attention_packed_keys(second, state);
    const int64_t S = state.parts[0].size(2);
    int64_t next = 0;
    for (int64_t n = 0; n < 4; ++n) {
      EXPECT_EQ(keys.starts[n].item<int>(), next);
      const int64_t past = std::min(S, state.parts[2][n][0].item<int64_t>());
      const int64_t start = starts[size_t(n)], length = starts[size_t(n) + 1] - start;
      const auto expected = [&](const at::Tensor& part, const at::Tensor& own) {
        return at::cat(
            {part[n].narrow(1, S - past, past).transpose(0, 1),
             own.squeeze(0).narrow(0, start, length)}
        );
      };
      const auto found = [&](const at::Tensor& x) { return x.narrow(0, next, past + length); };
      EXPECT_TRUE(at::equal(found(keys.k), expected(state.parts[0], second.k))) << n;
      EXPECT_TRUE(at::equal(found(keys.v), expected(state.parts[1], second.v))) << n;
      next += past + length;
    }
    EXPECT_EQ(keys.starts[4].item<int>(), next);
  }
}

}  // namespace
}  // namespace horner
