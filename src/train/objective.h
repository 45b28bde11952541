// A run that minimises something else than its task's loss, from weights that are given: so `horner convert` trains.
#pragma once

#include "train/loss.h"
#include "train/train.h"

namespace horner {

struct Objective {
  std::shared_ptr<Model> model;  // what is trained, from the weights that it has
  // The sum over the targets of a batch. Nothing in it may wait for the device (train/step.h).
  std::function<at::Tensor(const TargetBatch&, Context)> loss;
  // The learning rate of a parameter as a share of optim.lr; 0: it stays as it is.
  std::function<double(const std::string& parameter)> rate;
};

// Trains objective.model on the inputs of this task, in this process alone. Nothing is scored. Afterwards the model has the
// trained weights, also if the run had finished before. options.task is only a name in the run folder.
TrainResult train(
    const TrainOptions& options,
    const std::shared_ptr<Task>& task,
    const Objective& objective,
    const TrainTell& tell = {}
);

}  // namespace horner
