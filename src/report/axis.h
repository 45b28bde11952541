// An axis of a picture: which numbers it shows, where they stand, which of them get a tick.
//
//   linear  place = (x - low) / (high - low)        ticks 1, 2 or 5 times a power of ten
//   log     place = log(x / low) / log(high / low)  ticks powers of the base, or its 1, 2, 5 multiples
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace horner {

struct Axis {
  std::string label;
  bool log = false;
  double base = 10;                           // of the ticks of a log axis; 2 for lengths and bytes
  bool bytes = false;                         // ticks read 16 KiB
  std::optional<double> low = {}, high = {};  // where the data does not decide
};

struct Scale {
  double low = 0, high = 1;
  bool log = false;
  std::vector<double> ticks;  // rising, within low .. high

  bool shows(double x) const;    // finite, and positive on a log axis
  double place(double x) const;  // 0 at low, 1 at high
};

// A scale that holds all values that the axis can show, with some air, and about `count` ticks.
Scale make_scale(const Axis& axis, const std::vector<double>& values, int count);

std::string tick_text(const Axis& axis, double value);

}  // namespace horner
