// Settings that follow from others: what a task asks of a model, the device, the name.
#pragma once

#include "tasks/task.h"
#include "train/train.h"

namespace horner {

// Vocabulary, classes, features and output from the task; causal = false for mixers that can read
// in both directions, where the task does and the pattern does not say; device and precision by
// name. UsageError where a setting has no meaning.
TrainOptions resolve(TrainOptions options, const Task& task);

}  // namespace horner
