// The pictures of a comparison, from compare.json.
#pragma once

#include "core/json.h"
#include "report/svg.h"

namespace horner {

double number(const Json& json);                       // NaN for null
Point interval_point(double x, const Json& interval);  // {"mean", "half"}

Chart score_chart(const Json& compare);  // the metric against bytes of state
Chart curve_chart(const Json& compare);
Bars difference_bars(const Json& compare);
Chart speed_chart(const Json& compare, const std::string& key, const std::string& title);
Chart state_chart(const Json& compare);
Chart length_chart(const Json& compare);
Chart position_chart(const Json& compare);
bool has_points(const Chart&);

}  // namespace horner
