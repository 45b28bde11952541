// What is special to `linear`: the exponential gate at its extremes, resets, memory at long T.
#include "ops/linear/linear.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/csrc/autograd/autograd.h>

#include <fstream>
#include <limits>

#include "core/sanitizer_test.h"
#include "ops/contract.h"

namespace horner {
namespace {

Inputs sample(const Dims& dims, at::ScalarType type = at::kDouble) {
  return sample_inputs({find_op("linear"), {}, dims, at::kCPU, 2}, type);
}

// RetNet: one constant decay a per head, o_t = sum_s a^(t-s) (q_t.k_s) v_s (arXiv:2307.08621).
TEST(Linear, ConstantDecayIsRetention) {
  Inputs in = sample({.B = 1, .T = 20, .H = 1, .G = 1, .K = 4, .V = 3});
  in.g = at::full({1, 20, 1}, std::log(0.9), at::kDouble);
  const at::Tensor t = at::arange(20, at::kDouble);
  const at::Tensor D = at::pow(0.9, t.unsqueeze(1) - t.unsqueeze(0)).tril();
  const at::Tensor q = in.q.view({20, 4}), k = in.k.view({20, 4}), v = in.v.view({20, 3});
  const at::Tensor expected = at::matmul(at::matmul(q, k.t()) * D, v).view({1, 20, 1, 3});
  EXPECT_LT(relative_error(run(find_op("linear"), in, {}, {}).o, expected), 1e-13);
}

// A log-decay of -inf forgets everything before it, in every form, with finite gradients.
TEST(Linear, InfiniteDecayResets) {
  Inputs in = sample({.B = 1, .T = 20, .H = 2, .G = 2, .K = 4, .V = 3});
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1, 20, 2}, {1, 20, 2, 4}}) {
    in.g = at::full(shape, -0.1, at::kDouble);
    in.g.narrow(1, 9, 1).fill_(-std::numeric_limits<double>::infinity());
    for (const char* form : {"recurrent", "parallel", "chunked"}) {
      Options o;
      o.form = form;
      o.chunk = 8;
      Inputs leaves = in;
      leaves.q = in.q.clone().requires_grad_(true);
      leaves.k = in.k.clone().requires_grad_(true);
      const at::Tensor y = run(find_op("linear"), leaves, {}, o).o;
      Inputs after;
      after.q = in.q.narrow(1, 9, 11);
      after.k = in.k.narrow(1, 9, 11);
      after.v = in.v.narrow(1, 9, 11);
      after.g = at::full_like(in.g.narrow(1, 9, 11), -0.1);
      EXPECT_LT(relative_error(y.narrow(1, 9, 11), run(find_op("linear"), after, {}, o).o), 1e-13)
          << form;
      for (const at::Tensor& grad : torch::autograd::grad({y.sum()}, {leaves.q, leaves.k})) {
        EXPECT_TRUE(at::isfinite(grad).all().item<bool>()) << form;
      }
    }
  }
}

Result gated(Inputs in, const at::Tensor& i, const at::Tensor& f, const State& state, Options o) {
  in.i = i;
  in.g = f;
  o.norm = "bounded";
  return run(find_op("linear"), in, state, o);
}

// The direct recurrence overflows at i = 800; the output depends on differences of i alone where
// |q n| is the larger of the two, so adding a constant to i changes nothing.
TEST(ExponentialGate, StaysFiniteAndShiftInvariant) {
  const Inputs in = sample({.B = 2, .T = 33, .H = 4, .G = 2, .K = 4, .V = 3});
  const at::Tensor i = 5 * at::randn({2, 33, 2}, at::kDouble) + 40;
  const at::Tensor f = at::log_sigmoid(3 * at::randn({2, 33, 2}, at::kDouble));
  Options o;
  o.chunk = 8;
  const at::Tensor y = gated(in, i, f, {}, o).o;
  const at::Tensor shifted = gated(in, i + 760, f, {}, o).o;
  EXPECT_TRUE(at::isfinite(shifted).all().item<bool>());
  EXPECT_LT(relative_error(shifted, y), 1e-9);
  const at::Tensor closed =
      gated(in, i - 2000, f, {}, o).o;  // the floor of 1: nothing comes through
  EXPECT_LT(closed.abs().max().item<double>(), 1e-300);
}

TEST(ExponentialGate, SplitsAnywhere) {
  const Inputs in = sample({.B = 1, .T = 21, .H = 2, .G = 2, .K = 4, .V = 3});
  const at::Tensor i = 5 * at::randn({1, 21, 2}, at::kDouble);
  const at::Tensor f = at::log_sigmoid(3 * at::randn({1, 21, 2}, at::kDouble));
  Options o;
  o.chunk = 8;
  o.final_state = true;
  const Result whole = gated(in, i, f, {}, o);
  State state;
  std::vector<at::Tensor> parts;
  for (const auto& [start, length] : {std::pair<int64_t, int64_t>{0, 5}, {5, 1}, {6, 15}}) {
    Inputs some;
    some.q = in.q.narrow(1, start, length);
    some.k = in.k.narrow(1, start, length);
    some.v = in.v.narrow(1, start, length);
    const Result y = gated(some, i.narrow(1, start, length), f.narrow(1, start, length), state, o);
    state = y.state;
    parts.push_back(y.o);
  }
  EXPECT_LT(relative_error(at::cat(parts, 1), whole.o), 1e-12);
  EXPECT_LT(relative_error(state.parts[0], whole.state.parts[0]), 1e-12);
}

// Sequences of a packed batch, one of them empty, go on from their own rows.
TEST(ExponentialGate, Packs) {
  const Inputs in = sample({.B = 1, .T = 20, .H = 2, .G = 2, .K = 4, .V = 3});
  const at::Tensor i = 5 * at::randn({1, 20, 2}, at::kDouble);
  const at::Tensor f = at::log_sigmoid(3 * at::randn({1, 20, 2}, at::kDouble));
  Options o;
  o.final_state = true;
  State packed;
  std::vector<State> alone(3);
  for (const std::vector<int64_t>& starts :
       {std::vector<int64_t>{0, 7, 7, 20}, std::vector<int64_t>{0, 3, 16, 20}}) {
    Inputs all = in;
    all.cu_seqlens = at::tensor(starts, at::kLong);
    const Result y = gated(all, i, f, packed, o);
    packed = y.state;
    for (size_t j = 0; j < 3; ++j) {
      const int64_t from = starts[j], T = starts[j + 1] - from;
      if (T == 0) continue;
      const auto part = [&](const at::Tensor& x) { return x.narrow(1, from, T); };
      Inputs one;
      one.q = part(in.q), one.k = part(in.k), one.v = part(in.v);
      const Result own = gated(one, part(i), part(f), alone[j], o);
      alone[j] = own.state;
      EXPECT_LT(relative_error(part(y.o), own.o), 1e-12);
      EXPECT_LT(relative_error(row_of(packed, int64_t(j)).parts[0], own.state.parts[0]), 1e-12);
    }
  }
}

double peak_gigabytes() {  // of this process since the last reset
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") {
      double kilobytes = 0;
      status >> kilobytes;
      return kilobytes / 1e6;
    }
  }
  return 0;
}

// Forward and backward at T = 65,536, B1 H4 K64 V64 in fp32, peak under 3 GB.
class LinearSlow : public testing::TestWithParam<const char*> {};
TEST_P(LinearSlow, MemoryGrowsLinearly) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory would be counted";
  const Dims dims{.B = 1, .T = 65536, .H = 4, .G = 4, .K = 64, .V = 64};
  Variant variant;
  variant.gate = GetParam();
  Inputs in = sample_inputs({find_op("linear"), variant, dims, at::kCPU, 2}, at::kFloat);
  std::vector<at::Tensor> leaves = {in.q, in.k, in.v};
  if (in.g.defined()) leaves.push_back(in.g);
  for (at::Tensor& x : leaves) x.requires_grad_(true);
  // What is free is the system's, now and later: neither earlier tests nor gaps of the heap count.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  malloc_trim(0);
  if (!(std::ofstream("/proc/self/clear_refs") << "5"))
    GTEST_SKIP() << "no peak-memory counter to reset";
  const at::Tensor y = run(find_op("linear"), in, {}, {}).o;
  for (const at::Tensor& grad : torch::autograd::grad({y}, leaves, {at::ones_like(y)})) {
    EXPECT_TRUE(at::isfinite(grad).all().item<bool>());
  }
  RecordProperty("peak_gigabytes", fmt::format("{:.2f}", peak_gigabytes()));
  EXPECT_LT(peak_gigabytes(), 3.0);
}
INSTANTIATE_TEST_SUITE_P(Decay, LinearSlow, testing::Values("none", "head", "key"));

}  // namespace
}  // namespace horner
