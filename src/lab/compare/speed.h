// What a model costs at a length: time of a whole prompt, time of one more token, bytes of its state.
//
// One sequence. Each number is the median of several measurements after a warm-up. The measurement ends at the first length
// at which a prompt takes longer than half a second.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/json.h"
#include "model/model.h"

namespace horner {

struct SpeedPoint {
  int64_t T;
  double prefill = 0;  // tokens per second
  double decode = 0;   // tokens per second, one at a time after T tokens; 0: the model has no state
  int64_t state_bytes = 0;
};

std::vector<SpeedPoint> measure_speed(
    const ModelOptions& model, const std::vector<int64_t>& lengths, at::Device device
);
Json speed_json(const std::vector<SpeedPoint>& points);

// The length at which `mixer` decodes as fast as `softmax`, interpolated between the measured lengths. 0: from the first on;
// -1: at none of them.
double decode_crossover(
    const std::vector<SpeedPoint>& mixer, const std::vector<SpeedPoint>& softmax
);

// The first T at which a model's state is smaller than that of another, which grows by the same bytes for each token. 0:
// always; -1: never.
int64_t memory_crossover(const ModelOptions& model, const ModelOptions& growing);

}  // namespace horner
