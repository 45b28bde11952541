#include "lab/bench/subjects.h"

#include <algorithm>

#include "core/check.h"
#include "core/nearest.h"
#include "core/number.h"
#include "core/options.h"

namespace horner {
namespace {

constexpr const char *kStep = "one token", *kLate = "folded late";

// THE list of shapes. A CPU times the small ones.
const std::vector<BenchShape>& shapes() {
  static const std::vector<BenchShape> list = {
      {"S1", {8, 2048, 16, 16, 64, 64}},
      {"S2", {8, 2048, 16, 16, 128, 128}},
      {"S3", {4, 8192, 16, 16, 128, 128}},
      {"S4", {1, 32768, 16, 16, 128, 128}},
      {"L1", {1, 65536, 16, 16, 64, 64}},
      {"P1", {8, 2048, 16, 16, 16, 64}},
      {"P2", {8, 2048, 16, 16, 16, 128}},
      {"P3", {4, 8192, 16, 16, 16, 64}},
      {"P4", {1, 32768, 16, 16, 16, 64}},
      {"X1", {16, 4096, 16, 16, 128, 256}},
      {"E1", {1, 256, 4, 4, 64, 64}},   // so small that the call itself takes most of the time
      {"D1", {64, 1, 16, 16, 16, 64}},  // one token of each of 64 streams
      {"D2", {64, 1, 16, 16, 128, 128}},
      {"D3", {256, 1, 16, 16, 128, 128}},
      {"D4", {64, 1, 32, 32, 128, 128}},
      {"D5", {1, 1, 16, 16, 128, 128}},  // of one stream
      {"C1", {1, 512, 4, 4, 32, 32}},
      {"C2", {1, 512, 4, 4, 16, 32}},
  };
  return list;
}

// THE list of what is timed.
const std::vector<Subject>& subjects() {
  static const std::vector<Subject> list = {
      {"attention", "softmax", "none", "", {"S1", "S2", "S3", "S4", "L1"}, {"C1"}},
      {"attention", "window 512", "none", "window=512", {"S3"}, {}},
      {"attention",
       "window 512, 4 sinks, with norm",
       "none",
       "window=512,sinks=4,log_norm=true",
       {"S3"},
       {}},
      {"attention", "one token after 8,192", "none", "", {"D2", "D5"}, {}, 8192},
      {"power",
       "order 2",
       "none",
       "order=2",
       {"P1", "P2", "P3", "P4", "S1", "S2", "S3", "S4", "L1"},
       {"C2"}},
      {"power", "order 2, decay per head", "head", "order=2", {"P1", "P3", "S1"}, {"C2"}},
      {"power", "order 4", "none", "order=4", {"S1", "S2", "S3"}, {}},
      {"linear", "no decay", "none", "", {"S1", "S2", "S3", "S4"}, {"C1"}},
      {"linear", "decay per head", "head", "", {"S1", "S2", "S3", "S4", "E1"}, {"C1"}},
      {"linear", "decay per key", "key", "", {"S1", "S2", "S3", "S4"}, {"C1"}},
      {"linear", "no decay, sum norm", "none", "norm=sum", {"S1", "S3"}, {}},
      {"linear",
       "exponential gate",
       "exponential",
       "norm=bounded,scale=0.0883883476",
       {"X1"},
       {"C1"}},
      {"delta", "no decay", "none", "", {"S1", "S2", "S3"}, {"C1"}},
      {"delta", "decay per head", "head", "", {"S1", "S2", "S3"}, {"C1"}},
      {"delta", "decay per key", "key", "", {"S1", "S2", "S3"}, {"C1"}},
      {"scan", "elementwise", "key", "", {"S2", "S3"}, {"C1"}},
      {"power", "order 2, one token", "none", "order=2", {"D1"}, {}},
      {"power", "order 2, one token, folded late", "none", "order=2", {"D1"}, {}},
      {"linear", "decay per head, one token", "head", "", {"D2", "D3", "D4"}, {}},
      {"linear", "decay per head, one token, folded late", "head", "", {"D2", "D3", "D4"}, {}},
      {"delta", "decay per head, one token", "head", "", {"D2", "D3", "D4"}, {}},
      {"delta", "decay per key, one token", "key", "", {"D2", "D3", "D4"}, {}},
  };
  return list;
}

BenchShape shape_named(const std::string& name) {
  std::vector<std::string> known;
  for (const BenchShape& shape : shapes()) {
    if (shape.name == name) return shape;
    known.push_back(shape.name);
  }
  std::vector<int64_t> n;
  size_t start = 0;
  for (size_t end = 0; end <= name.size(); ++end) {
    if (end < name.size() && name[end] != 'x') continue;
    const std::string digits = name.substr(start, end - start);
    const std::optional<int64_t> number = whole_number(digits);
    HORNER_CHECK(
        number, "{} (or BxTxHxKxV, such as 8x2048x16x64x64)", unknown("shape", name, known)
    );
    n.push_back(*number);
    start = end + 1;
  }
  HORNER_CHECK(
      n.size() == 5 && *std::min_element(n.begin(), n.end()) >= 1,
      "a shape is BxTxHxKxV, five numbers of at least 1, got '{}'",
      name
  );
  return {name, {n[0], n[1], n[2], n[2], n[3], n[4]}};
}

}  // namespace

bool BenchJob::lazy() const { return subject.variant.ends_with(kLate); }

std::vector<BenchJob> bench_jobs(const BenchOptions& options, bool on_cpu) {
  for (const std::string& name : options.op) find_op(name);
  std::vector<BenchJob> list;
  for (const Subject& subject : subjects()) {
    const auto& chosen = options.op;
    if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), subject.op) == chosen.end())
      continue;
    const Op& op = find_op(subject.op);
    Variant variant{subject.variant, op.defaults, subject.gate};
    from_text(variant.options, subject.settings);
    const auto& own = on_cpu ? subject.on_cpu : subject.on_gpu;
    for (const std::string& name : options.shape.empty() ? own : options.shape) {
      const bool asked_for = std::find(own.begin(), own.end(), name) != own.end();
      const bool standard = std::any_of(shapes().begin(), shapes().end(), [&](const auto& shape) {
        return shape.name == name;
      });
      if (standard && !asked_for && !on_cpu) continue;  // a standard shape, but not of this row
      const BenchShape shape = shape_named(name);
      const bool step = subject.variant.find(kStep) != std::string::npos;
      if (step == (shape.dims.T == 1)) list.push_back({op, subject, shape, variant});
    }
  }
  HORNER_CHECK(!list.empty(), "none of these ops is timed at these shapes");
  return list;
}

}  // namespace horner
