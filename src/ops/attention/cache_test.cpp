// A cache grows in place, states stay valid, and forks share their past.
#include "ops/attention/cache.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "core/check.h"
#include "ops/contract.h"

namespace horner {
namespace {

const Op& op() { return find_op("attention"); }

Inputs sample(const Dims& dims, uint64_t seed = 4, at::ScalarType type = at::kDouble) {
  return sample_inputs({op(), {}, dims, at::kCPU, seed}, type);
}

Options with_state(int64_t window = 0, int64_t sinks = 0) {
  Options o;
  o.window = window;
  o.sinks = sinks;
  o.log_norm = true;
  o.final_state = true;
  return o;
}

bool same(const Result& a, const Result& b) {
  bool equal = at::equal(a.o, b.o) && at::equal(a.norm, b.norm);
  for (size_t i = 0; i < a.state.parts.size(); ++i)
    equal = equal && at::equal(a.state.parts[i], b.state.parts[i]);
  return equal;
}

constexpr Dims kDims{.B = 2, .T = 40, .H = 4, .G = 2, .K = 8, .V = 6};

// Every window and number of sinks that a test walks.
const std::pair<int64_t, int64_t> kWindows[] = {{0, 0}, {5, 0}, {5, 3}, {1, 2}};

// Rows of different lengths in fixed caches give the o of their own states, and their token lies in its slot.
TEST(AttentionCache, FixedCachesHoldRowsOfAnyLength) {
  for (const auto& [window, sinks] : kWindows) {
    const Options o = with_state(window, sinks);
    const Inputs in = sample(kDims), a = sample(kDims, 5);
    const int64_t seen[] = {9, 17}, slots = window > 0 ? window : 32;
    std::vector<State> own;
    State fixed{
        {fixed_cache(at::zeros({2, 2, slots, 8}, in.k.options())),
         fixed_cache(at::zeros({2, 2, slots, 6}, in.k.options())),
         at::empty({2, 2}, at::kLong)}};
    for (int64_t b = 0; b < 2; ++b) {
      Inputs row = tokens(op(), in, 0, seen[b]);
      for (at::Tensor* x : {&row.q, &row.k, &row.v}) *x = x->narrow(0, b, 1);
      own.push_back(run(op(), row, {}, o).state);
      fixed.parts[2][b].fill_(seen[b]);
      for (const size_t part : {0, 1}) {
        const at::Tensor x = (part == 0 ? row.k : row.v).transpose(1, 2);
        for (int64_t t = 0; t < seen[b]; ++t)
          fixed.parts[part][b].select(1, t % slots).copy_(x[0].select(1, t));
      }
    }
    for (size_t part = 3; part < own[0].parts.size(); ++part)
      fixed.parts.push_back(at::cat({own[0].parts[part], own[1].parts[part]}));
    for (int64_t t = 0; t < 8; ++t) {
      const Inputs token = tokens(op(), a, t, 1);
      const Result both = run(op(), token, fixed, o);
      EXPECT_EQ(both.state.parts[0].data_ptr(), fixed.parts[0].data_ptr());
      EXPECT_TRUE(is_fixed(both.state.parts[0]) && !has_room(both.state.parts[0]));
      for (int64_t b = 0; b < 2; ++b) {
        Inputs row = token;
        for (at::Tensor* x : {&row.q, &row.k, &row.v}) *x = x->narrow(0, b, 1);
        const Result alone = run(op(), row, own[size_t(b)], o);
        own[size_t(b)] = alone.state;
        EXPECT_LE((both.o[b] - alone.o[0]).abs().max().item<double>(), 1e-12);
        EXPECT_LE((both.norm[b] - alone.norm[0]).abs().max().item<double>(), 1e-12);
        const at::Tensor slot = both.state.parts[0][b].select(1, (seen[b] + t) % slots);
        EXPECT_TRUE(slot.equal(row.k[0][0]));
        const at::Tensor ordered = in_order(both.state.parts[0], both.state.parts[2])[b];
        const int64_t held = std::min(slots, seen[b] + t + 1);
        EXPECT_TRUE(ordered.narrow(1, slots - held, held)
                        .equal(own[size_t(b)].parts[0][0].narrow(
                            1, own[size_t(b)].parts[0].size(2) - held, held
                        )));
      }
      fixed = both.state;
    }
    EXPECT_THROW(run(op(), tokens(op(), a, 0, 2), fixed, o), UsageError);
  }
}

TEST(AttentionCache, AStepCopiesNothing) {
  for (const auto& [window, sinks] : kWindows) {
    const Inputs in = sample(kDims);
    const Options o = with_state(window, sinks);
    State state = run(op(), tokens(op(), in, 0, 20), {}, o).state;
    for (int64_t t = 20; t < 40; ++t) {
      const State before = state;
      state = run(op(), tokens(op(), in, t, 1), before, o).state;
      for (const size_t part : {0, 1}) {
        EXPECT_EQ(state.parts[part].storage().data(), before.parts[part].storage().data());
        const int64_t moved = (window > 0 ? 1 : 0) * before.parts[part].size(3);
        EXPECT_EQ(state.parts[part].storage_offset(), before.parts[part].storage_offset() + moved);
      }
      if (sinks > 0) {  // the sinks do not move at all
        EXPECT_EQ(state.parts[3].data_ptr(), before.parts[3].data_ptr());
      }
    }
  }
}

TEST(AttentionCache, ForksAreSeparateRuns) {
  for (const auto& [window, sinks] : kWindows) {
    const Options o = with_state(window, sinks);
    const Inputs trunk = sample(kDims), left = sample(kDims, 5), right = sample(kDims, 6);
    for (const int64_t start : {2, 17}) {
      const auto go_on = [&](const Inputs& in, State state) {
        Result y;
        for (int64_t t = 0; t < 9; ++t) {
          y = run(op(), tokens(op(), in, t, 1), state, o);
          state = y.state;
        }
        return y;
      };
      const auto begin = [&] { return run(op(), tokens(op(), trunk, 0, start), {}, o).state; };
      const State fork = begin();
      const Result a = go_on(left, fork), b = go_on(right, fork);
      EXPECT_TRUE(same(a, go_on(left, begin()))) << window << " " << sinks;
      EXPECT_TRUE(same(b, go_on(right, begin()))) << window << " " << sinks;
    }
  }
}

TEST(AttentionCache, RollsBackToAnyState) {
  for (const auto& [window, sinks] : kWindows) {
    const Inputs in = sample(kDims), other = sample(kDims, 9);
    const Options o = with_state(window, sinks);
    std::vector<State> states = {{}};
    std::vector<Result> first;
    for (int64_t t = 0; t < 40; ++t) {
      first.push_back(run(op(), tokens(op(), in, t, 1), states.back(), o));
      states.push_back(first.back().state);
    }
    for (const int64_t t : {30, 39, 3, 12, 0}) {
      run(op(), tokens(op(), other, 0, 4), states[size_t(t)], o);  // something else came after it
      const Result again = run(op(), tokens(op(), in, t, 1), states[size_t(t)], o);
      EXPECT_TRUE(same(again, first[size_t(t)])) << t << ", window " << window;
    }
  }
}

TEST(AttentionCache, TenThousandStepsCopyALittle) {
  const at::Tensor row = at::ones({1, 1, 1, 2});
  for (const int64_t window : {0, 64}) {
    at::Tensor cache = at::empty({1, 1, 0, 2});
    int64_t copied = 0;
    for (int64_t t = 0; t < 10000; ++t) {
      const void* buffer = cache.storage().data();
      const at::Tensor next = append(cache, row * double(t), window);
      if (next.storage().data() != buffer) copied += cache.size(2);
      cache = next;
    }
    EXPECT_LE(copied, 20000) << window;
    EXPECT_LE(room_bytes(cache), 4 * int64_t(cache.nbytes()) + 1024) << window;
    const int64_t S = cache.size(2);
    EXPECT_TRUE(at::equal(cache.select(3, 0).flatten(), at::arange(10000 - S, 10000, at::kFloat)));
    EXPECT_EQ(least_appended(cache), 10000);
  }
}

// A row, a clone, a gathered batch and an expanded one go on as they should, and the source with
// them.
TEST(AttentionCache, ViewsOfACache) {
  const Options o = with_state();
  const Inputs in = sample(kDims), next = sample(kDims, 5);
  const State whole = run(op(), in, {}, o).state;
  const auto step = [&](const State& state, int64_t row, int64_t B) {
    Inputs one = tokens(op(), next, 0, 1);
    for (const Input& x : op().inputs) one.*x.tensor = (one.*x.tensor).narrow(0, row, B);
    return run(op(), one, state, o);
  };
  State clone, gathered, twice;
  for (const at::Tensor& part : whole.parts) {
    clone.parts.push_back(part.clone());
    gathered.parts.push_back(part.index_select(0, at::tensor({1, 0}, at::kLong)));
    std::vector<int64_t> sizes = part.sizes().vec();
    sizes[0] = 2;
    twice.parts.push_back(part.narrow(0, 0, 1).expand(sizes));
  }
  const Result expected = step(clone, 0, 2);
  const Result expanded = step(twice, 0, 2);
  EXPECT_TRUE(at::equal(expanded.o.select(0, 0), expected.o.select(0, 0)));
  EXPECT_FALSE(at::equal(expanded.state.parts[0].select(0, 0), expanded.state.parts[0].select(0, 1))
  );
  EXPECT_TRUE(at::equal(step(row_of(whole, 1), 1, 1).o, expected.o.narrow(0, 1, 1)));
  EXPECT_TRUE(at::equal(step(row_of(whole, 0), 0, 1).o, expected.o.narrow(0, 0, 1)));
  EXPECT_TRUE(same(step(whole, 0, 2), expected));
  EXPECT_TRUE(same(step(whole, 0, 2), expected));
  EXPECT_FALSE(at::equal(step(gathered, 0, 2).o, expected.o));
}

// Rows of different lengths: a step equals that of each row alone, bit for bit.
TEST(AttentionCache, RowsOfDifferentLengths) {
  for (const auto& [window, sinks] : kWindows) {
    const Options o = with_state(window, sinks);
    Inputs packed = sample({.B = 1, .T = 40, .H = 4, .G = 2, .K = 8, .V = 6});
    packed.cu_seqlens = at::tensor({0, 3, 3, 40}, at::kLong);
    State together = run(op(), packed, {}, o).state;
    const Inputs next = sample({.B = 3, .T = 20, .H = 4, .G = 2, .K = 8, .V = 6}, 8);
    std::vector<State> alone(3);
    for (int64_t j = 0; j < 3; ++j) {
      const int64_t start = j == 0 ? 0 : 3, length = j == 0 ? 3 : j == 1 ? 0 : 37;
      packed.cu_seqlens = at::Tensor();
      if (length > 0)
        alone[size_t(j)] = run(op(), tokens(op(), packed, start, length), {}, o).state;
    }
    for (int64_t t = 0; t < 20; ++t) {
      const Inputs some = tokens(op(), next, t, 1);
      const Result y = run(op(), some, together, o);
      together = y.state;
      for (int64_t j = 0; j < 3; ++j) {
        Inputs one;
        for (const Input& x : op().inputs) one.*x.tensor = (some.*x.tensor).narrow(0, j, 1);
        const Result own = run(op(), one, alone[size_t(j)], o);
        alone[size_t(j)] = own.state;
        EXPECT_TRUE(at::equal(y.o.narrow(0, j, 1), own.o)) << t << " " << j << " " << window;
        EXPECT_TRUE(at::equal(y.norm.narrow(0, j, 1), own.norm)) << t << " " << j;
      }
    }
  }
}

// Where a gradient is wanted nothing is written in place.
TEST(AttentionCache, GradientsFlowThroughIt) {
  const Options o = with_state();
  const Inputs in = sample(kDims);
  State state = run(op(), tokens(op(), in, 0, 30), {}, o).state;
  const at::Tensor before = state.parts[0].clone();
  Inputs next = tokens(op(), in, 30, 3);
  next.k = next.k.detach().requires_grad_(true);
  const c10::AutoGradMode graph(true);
  const Result y = run(op(), next, state, o);
  EXPECT_TRUE(y.state.parts[0].requires_grad());
  EXPECT_FALSE(has_room(y.state.parts[0]));
  EXPECT_TRUE(at::equal(state.parts[0], before));
}

TEST(AttentionCache, OutlivesInferenceMode) {
  const Options o = with_state(5, 3);
  const Inputs in = sample(kDims);
  State state;
  {
    const c10::InferenceMode mode;
    state = run(op(), tokens(op(), in, 0, 10), {}, o).state;
  }
  const Result y = run(op(), tokens(op(), in, 10, 1), state, o);
  const Result whole = run(op(), tokens(op(), in, 0, 11), {}, o);
  EXPECT_LT(relative_error(y.o, whole.o.narrow(1, 10, 1)), 1e-12);
}

}  // namespace
}  // namespace horner
