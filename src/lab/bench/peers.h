// Others' programs for the same functions, timed in processes of their own by tools/bench_peers.py.
#pragma once

#include "lab/bench/bench.h"

namespace horner {

// UsageError where the folder holds no fla package, or the script is not there.
void check_peers(const std::string& folder, at::Device);

// Adds their rows beside those of the report, and versions; one that refuses or crashes is a row that says so.
// Calls `added` after each.
void run_peers(const BenchOptions&, BenchReport&, const std::function<void()>& added);

}  // namespace horner
