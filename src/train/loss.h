// The loss of each target of a batch.
//
//   tokens    -log softmax(logits_t)[target_t]   at positions that have a target
//   labels    -log softmax(logits)[label]        of each sequence
//   numbers   (prediction_t - value_t)^2         at positions that have a value
//
// The head is computed only at positions that have a target.
#pragma once

#include "model/model.h"
#include "tasks/task.h"

namespace horner {

// A batch on its device, with the places of its targets.
struct TargetBatch {
  Batch batch;
  at::Tensor places;            // (n): t + T row of each target; for labels: the rows
  at::Tensor answers;           // (n): the right token, class or number
  int64_t count = 0;            // n
  int64_t rows = 0, width = 0;  // B, T
  int64_t tokens = 0;           // tokens that the model reads, without padding
};
TargetBatch find_targets(Batch batch);                  // on the CPU
TargetBatch to_device(TargetBatch, at::Device device);  // without waiting for it

struct Losses {
  at::Tensor each;         // (n), fp32
  at::Tensor predictions;  // (n,vocabulary), (n,classes) or (n): the model's answers
};
Losses losses(Model& model, const TargetBatch& batch, Context context = {});

}  // namespace horner
