// Where the time of a training step goes: by part of the model (nn/part.h), and by kernel.
//
// torch's profiler records every kernel with the operation that started it. An operation of the forward lies inside the
// event of its part. An operation of the backward lies inside its node's, whose number names the part (nn/part.h).
// On a CPU there are no kernels: the operations' own times, without those that they call, take their place.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "core/json.h"

namespace horner {

struct PartTime {
  std::string part;
  double milliseconds = 0;  // of a step
};
struct KernelTime {
  std::string name, part;
  int64_t calls = 0;        // of a step
  double milliseconds = 0;  // of a step
};
struct StepProfile {
  std::vector<PartTime> parts;      // the longest first; "idle" last, where it is known
  std::vector<KernelTime> kernels;  // the longest first
  double busy() const;              // ms of a step that are in parts other than idle
  // What is left of the step's time, which was measured without a profiler.
  void add_idle(double step_milliseconds);
  Json json() const;
};
StepProfile profile_steps(const std::function<void()>& step, int64_t steps, at::Device device);

}  // namespace horner
