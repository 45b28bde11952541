// What `horner bench ops` times: an op, a setting that changes its mathematics, and a shape.
#pragma once

#include "lab/bench/bench.h"

namespace horner {

struct Subject {
  std::string op, variant, gate, settings;
  std::vector<std::string> on_gpu, on_cpu;  // shapes
  int64_t past = 0;                         // tokens in the cache that one token reads
};

struct BenchJob {
  const Op& op;
  const Subject& subject;
  BenchShape shape;
  Variant variant;  // the subject as the op's own options

  bool lazy() const;  // one token by ops/lazy.h
};

std::vector<BenchJob> bench_jobs(const BenchOptions&, bool on_cpu);

}  // namespace horner
