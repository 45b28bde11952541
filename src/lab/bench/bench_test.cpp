// Floors against numbers worked out by hand, and what the command refuses.
#include "lab/bench/bench.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "core/check.h"
#include "lab/bench/cost.h"

namespace horner {
namespace {

Inputs shaped(const Dims& d, bool decay) {
  const auto like = at::device(at::kMeta).dtype(at::kBFloat16);
  Inputs in;
  in.q = at::empty({d.B, d.T, d.H, d.K}, like);
  in.k = at::empty({d.B, d.T, d.G, d.K}, like);
  in.v = at::empty({d.B, d.T, d.G, d.V}, like);
  if (decay) in.g = at::empty({d.B, d.T, d.G}, like.dtype(at::kFloat));
  return in;
}

// ms at 4.2 TB/s and 750 TFLOP/s.
double floor_ms(const BenchCost& c) { return std::max(c.bytes / 4.2e9, c.flops / 750e9); }

TEST(BenchCost, FloorsOfTheStandardShapes) {
  const Dims S1{8, 2048, 16, 16, 64, 64}, S3{4, 8192, 16, 16, 128, 128};
  const Dims P1{8, 2048, 16, 16, 16, 64};
  const BenchCosts linear = costs(find_op("linear"), shaped(S1, true), {}, {}, "chunked kernel");
  EXPECT_NEAR(floor_ms(linear.forward), 0.032, 0.001);
  EXPECT_NEAR(floor_ms(linear.both), 0.120, 0.002);
  const Op& power = find_op("power");
  const BenchCosts chunked = costs(power, shaped(P1, false), {}, power.defaults, "chunked kernel");
  EXPECT_NEAR(floor_ms(chunked.forward), 0.020, 0.001);
  EXPECT_NEAR(floor_ms(chunked.both), 0.0859, 0.0005);  // 14 K + 18 V bytes a token, no decay
  const BenchCosts softmax = costs(find_op("attention"), shaped(S3, false), {}, {}, "parallel");
  EXPECT_NEAR(floor_ms(softmax.forward), 1.47, 0.01);
  EXPECT_NEAR(floor_ms(softmax.both), 5.13, 0.01);
}

TEST(BenchCost, AnOpWithoutFlopsHasNoPrice) {
  Op unknown = find_op("linear");
  unknown.name = "unknown";
  unknown.flops = nullptr;
  const Dims d{1, 64, 1, 1, 8, 8};
  EXPECT_THROW(costs(unknown, shaped(d, false), {}, {}, forms::kChunked), UsageError);
}

TEST(BenchTimes, MedianAndPercentiles) {
  std::vector<double> ms;
  for (int i = 100; i >= 0; --i) ms.push_back(i);
  const Times t = times_of(ms);
  EXPECT_EQ(t.median, 50);
  EXPECT_EQ(t.p10, 10);
  EXPECT_EQ(t.p90, 90);
}

constexpr auto kQuiet = [](auto&&...) {};

BenchOptions once(const std::string& op, const std::string& shape) {
  BenchOptions options;
  options.device = "cpu";
  options.op = {op};
  options.shape = {shape};
  options.repeats = 1;
  return options;
}

TEST(Bench, ChecksThenTimes) {
  size_t kept = 0;
  const auto keep = [&](const BenchReport& so_far) { kept = so_far.rows.size(); };
  const BenchReport report = bench_ops(once("linear", "1x40x2x4x4"), kQuiet, keep);
  EXPECT_EQ(kept, report.rows.size());
  ASSERT_EQ(report.rows.size(), 5u);  // no decay, per head, per key, sum norm, exponential gate
  EXPECT_EQ(report.failed(), 0u);
  for (const BenchRow& row : report.rows) {
    EXPECT_GT(row.eager_both.median, 0) << row.variant;
    EXPECT_GT(row.error, 0) << row.variant;
    EXPECT_LE(row.error, row.allowed) << row.variant;
  }
}

TEST(Bench, SetsOneTokenBesideACopyOfItsState) {
  const BenchReport report = bench_ops(once("delta", "2x1x2x8x8"), kQuiet, kQuiet);
  ASSERT_EQ(report.rows.size(), 4u);  // a decay per head, and per key
  for (size_t i = 0; i < 4; i += 2) {
    const BenchRow &token = report.rows[i], &copy = report.rows[i + 1];
    EXPECT_EQ(copy.program, "torch");
    EXPECT_EQ(copy.variant, token.variant);
    EXPECT_GT(copy.eager_forward.median, 0);
    EXPECT_EQ(token.peer_forward, copy.eager_forward.median);
  }
}

TEST(Bench, RefusesShapes) {
  BenchOptions options;
  options.device = "cpu";
  for (const char* shape : {"S9", "1x2x3", "1x2x0x4x4", "1x2xax4x4"}) {
    options.shape = {shape};
    EXPECT_THROW(bench_ops(options, kQuiet, kQuiet), UsageError) << shape;
  }
}

}  // namespace
}  // namespace horner
