// How long a training step takes in the training loop's own way: replayed as a graph on a GPU, its numbers read late.
#pragma once

#include "train/train.h"

namespace horner {

struct ReplayedTime {
  double seconds = 0;     // of a step
  bool replayed = false;  // false: the steps ran eagerly; `why` may say why
  std::string why;
};

// `steps` steps in a row on random tokens (B,T), all of which are targets. The model changes.
ReplayedTime time_replayed(
    Model& model,
    const ModelOptions& options,
    int64_t B,
    int64_t T,
    int64_t steps,
    at::Device device,
    bool bf16
);

}  // namespace horner
