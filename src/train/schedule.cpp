#include "train/schedule.h"

#include <cmath>
#include <numbers>

namespace horner {

double schedule_share(const ScheduleOptions& o, int64_t step) {
  if (step < o.warmup) return double(step + 1) / double(o.warmup);
  const double rest = double(std::max<int64_t>(1, o.steps - o.warmup));
  const double p = std::min(1.0, double(step - o.warmup) / rest);
  const double f = o.final_lr;
  if (o.kind == "linear") return 1 - (1 - f) * p;
  if (o.kind == "cosine") return f + (1 - f) * (1 + std::cos(std::numbers::pi * p)) / 2;
  if (o.kind == "wsd") {
    const double fall = std::max(1.0, o.decay * double(o.steps));  // steps that it takes
    const double start = double(o.steps) - fall;
    return double(step) <= start ? 1 : 1 - (1 - f) * std::min(1.0, (double(step) - start) / fall);
  }
  return 1;
}

}  // namespace horner
