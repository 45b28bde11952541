// A comparison as text, from compare.json: the console's table, CSV.
#pragma once

#include "core/json.h"
#include "report/table.h"

namespace horner {

Table compare_table(const Json& compare);
std::string compare_csv(const Json& compare);  // one line a run

// Numbers as table and page show them.
std::string crossover_text(const Json& T);  // always, never, 1024; - where nothing was measured
std::string flops_text(double x);           // 12.3 k, 4.56 M

}  // namespace horner
