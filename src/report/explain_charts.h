// The pictures of one mixer.
#pragma once

#include "lab/explain/explain.h"
#include "report/svg.h"

namespace horner {

Chart state_chart(const Explanation&);      // against a key/value cache
Chart spectrum_chart(const Explanation&);   // eigenvalues of Lambda
Chart half_life_chart(const Explanation&);  // in tokens
Bars order_bars(const Explanation&);        // shares of the exponential's orders
HeatMap map_picture(const Explanation&, const std::string& title);

}  // namespace horner
