// Settings that follow from others: the model's shape from the task, the device, the name.
#pragma once

#include "tasks/task.h"
#include "train/train.h"

namespace horner {

// Fills in vocabulary, classes, features and output from the task; causal = false for mixers that can read in both directions,
// if the task allows it and the pattern does not set it; device and precision by name. UsageError if a setting makes no sense.
// With `from` and no settings of the model, its settings are those of `from`.
TrainOptions resolve(TrainOptions options, const Task& task);

// The task with the tokenizer of `from`, where the task takes one and none is given.
std::string task_of(const TrainOptions& options);

}  // namespace horner
