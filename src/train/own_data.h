// Training on one's own data: a task that is on no list.
#pragma once

#include "tasks/task.h"
#include "train/train.h"

namespace horner {

// train() on this task. options.task is then only its name in the run folder.
TrainResult train(
    const TrainOptions& options, const std::shared_ptr<Task>& task, const TrainTell& tell = {}
);

}  // namespace horner
