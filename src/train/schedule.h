// The learning rate of a step, as a share of the highest; s = 0 .. steps-1, w warm-up steps.
//
//   s < w      (s + 1) / w
//   constant   1
//   linear     1 - (1 - f) p               p = (s - w) / (steps - w),  f = final_lr
//   cosine     f + (1 - f) (1 + cos(pi p)) / 2
//   wsd        1, then linear to f over the last `decay` of the steps
#pragma once

#include "train/train.h"

namespace horner {

double schedule_share(const ScheduleOptions& options, int64_t step);

}  // namespace horner
