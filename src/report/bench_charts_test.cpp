// The picture of a benchmark: one pair of charts per op that was timed at two lengths.
#include "report/bench_charts.h"

#include <gtest/gtest.h>

namespace horner {
namespace {

BenchRow row(const std::string& program, const std::string& op, int64_t T, double ms) {
  BenchRow r;
  r.program = program;
  r.op = op;
  r.variant = "no decay";
  r.form = "chunk";
  r.shape = {"S", {.B = 2, .T = T, .H = 4, .G = 4, .K = 8, .V = 16}};
  r.both.median = ms;
  if (program == "horner") r.floor_both = ms / 4;
  return r;
}

TEST(BenchPicture, DrawsOpsOfTwoLengths) {
  BenchReport report;
  report.device = "a GPU";
  report.rows = {row("horner", "linear", 64, 1), row("horner", "scan", 64, 1)};
  EXPECT_EQ(bench_picture(report), "");
  report.rows.push_back(row("horner", "linear", 128, 1));
  report.rows.push_back(row("fla", "linear", 128, 2));
  const std::string picture = bench_picture(report);
  EXPECT_NE(picture.find("linear: time"), std::string::npos);
  EXPECT_EQ(picture.find("scan: time"), std::string::npos);
  EXPECT_NE(picture.find("no decay, 8/16 at S: 977 ns"), std::string::npos);  // 1 ms / (2 128 4)
  EXPECT_NE(picture.find("fla chunk: no decay, 8/16"), std::string::npos);    // dashed, beside it
  EXPECT_NE(picture.find("no decay, 8/16 at S: 0.25"), std::string::npos);
  EXPECT_EQ(
      picture.find("fla chunk: no decay, 8/16 at S: 0"), std::string::npos
  );  // it has no floor
}

}  // namespace
}  // namespace horner
