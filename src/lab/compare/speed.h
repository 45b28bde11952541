// What a model costs at a length: time of a whole prompt, time of one more token, bytes of its state.
//
// One sequence. Several models are timed in rounds, one after the other, so that a slow minute of the machine meets all of them.
// A number is the median over all rounds; the 10th and 90th percentiles say how much it varies. A model is timed no further
// than the first length at which a prompt takes longer than half a second.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "core/json.h"
#include "model/model.h"

namespace horner {

struct SpeedPoint {
  int64_t T;
  double prefill = 0;  // tokens per second
  double decode = 0;   // tokens per second, one at a time after T tokens; 0: the model has no state
  int64_t state_bytes = 0;
  double decode_p10 = 0, decode_p90 = 0;  // percentiles of `decode`
};

constexpr int kSpeedRounds = 3, kSpeedSteps = 8;  // tokens that are timed in each round

using SpeedTell = std::function<void(int round, size_t model)>;
std::vector<std::vector<SpeedPoint>> measure_speeds(
    const std::vector<ModelOptions>& models,
    const std::vector<int64_t>& lengths,
    at::Device device,
    const SpeedTell& tell = {}
);
Json speed_json(const std::vector<SpeedPoint>& points);

// From which length on a mixer decodes faster than another. Of two speeds one is higher if their ranges from the 10th to the
// 90th percentile do not overlap.
struct Crossover {
  enum class Kind { not_measured, always, never, between, not_resolved };
  Kind kind = Kind::not_measured;
  int64_t low = 0,
          high = 0;  // between: slower up to `low` (0: nowhere for sure), faster from `high` on
  Json json() const;
};
Crossover decode_crossover(
    const std::vector<SpeedPoint>& mixer, const std::vector<SpeedPoint>& softmax
);

// The first T at which a model's state is smaller than that of another, which grows by the same bytes for each token. 0:
// always; -1: never.
int64_t memory_crossover(const ModelOptions& model, const ModelOptions& growing);

}  // namespace horner
