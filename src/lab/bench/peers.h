// Others' programs for the same functions, timed in processes of their own by tools/bench_peers.py.
#pragma once

#include "lab/bench/bench.h"

namespace horner {

// UsageError if the folder holds no fla package, or the script does not exist.
void check_peers(const std::string& folder, at::Device);

// Adds their rows and versions to the report. A peer that refuses or crashes becomes a row that says so. Calls `added` after
// each row.
void run_peers(const BenchOptions&, BenchReport&, const std::function<void()>& added);

}  // namespace horner
