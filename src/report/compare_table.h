// A comparison as text: the console's table, CSV.
#pragma once

#include "lab/compare/compare.h"
#include "report/table.h"

namespace horner {

Table compare_table(const CompareResult&);
std::string
baselines_text(const CompareResult&);  // what simple rules score, in a sentence; empty: none is known
std::string compare_text(
    const CompareResult&, size_t width
);  // table, verdict and notes; width: as of Table::text
std::string compare_csv(const CompareResult&);  // one line a run

// Numbers as table and page show them.
std::string crossover_text(double T);          // always, never, 1024; - where nothing was measured
std::string crossover_text(const Crossover&);  // also 512 .. 2048, and "not resolved"
std::string flops_text(double x);              // 12.3 k, 4.56 M

}  // namespace horner
