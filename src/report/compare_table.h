// A comparison as text: the console's table, CSV.
#pragma once

#include "lab/compare/compare.h"
#include "report/table.h"

namespace horner {

Table compare_table(const CompareResult&);
std::string compare_csv(const CompareResult&);  // one line a run

// Where a mixer overtakes softmax; NaN for softmax itself, whatever its settings.
double memory_crossover_of(const CompareRow&);
double time_crossover_of(const CompareRow&);

// Numbers as table and page show them.
std::string crossover_text(double T);  // always, never, 1024; - where nothing was measured
std::string flops_text(double x);      // 12.3 k, 4.56 M

}  // namespace horner
