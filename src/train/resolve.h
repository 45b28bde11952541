// Settings that follow from others: what a task asks of a model, the device, the name.
#pragma once

#include "tasks/task.h"
#include "train/train.h"

namespace horner {

// A list on the command line is cut at every comma: settings go back to their mixer.
std::vector<std::string> whole_mixers(const std::vector<std::string>& items);

// Vocabulary, classes, features and output from the task; causal = false for mixers that can read
// in both directions, where the task does and the pattern does not say; device and precision by
// name. UsageError where a setting has no meaning.
TrainOptions resolve(TrainOptions options, const Task& task);

}  // namespace horner
