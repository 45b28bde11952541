// The pictures of a comparison.
#pragma once

#include "lab/compare/compare.h"
#include "report/html.h"

namespace horner {

Better better_of(const CompareResult&);              // of its metric
std::string metric_label(const CompareResult&);      // "loss, lower is better"
std::vector<int> row_colours(const CompareResult&);  // of its rows, report/palette.h
int64_t trained_length(const CompareResult&);        // T of the task; 0: not known

Chart score_chart(const CompareResult&);  // the metric against bytes of state
Chart curve_chart(const CompareResult&);
Bars difference_bars(const CompareResult&);
Chart decode_chart(const CompareResult&);
Chart prefill_chart(const CompareResult&);
Chart state_chart(const CompareResult&);
Chart length_chart(const CompareResult&);
Chart position_chart(const CompareResult&);
bool has_points(const Chart&);

}  // namespace horner
