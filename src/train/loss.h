// What a batch costs: the loss of each thing that counts in it.
//
//   tokens    -log softmax(logits_t)[target_t]   at positions that have a target
//   labels    -log softmax(logits)[label]        of each sequence
//   numbers   (prediction_t - value_t)^2         at positions that have a value
//
// The head is computed only where something counts.
#pragma once

#include "model/model.h"
#include "tasks/task.h"

namespace horner {

// A batch on its device, with the places that count.
struct TargetBatch {
  Batch batch;
  at::Tensor places;            // (n): t + T row of what counts; of labels: the rows
  at::Tensor answers;           // (n): token, class or number that is right
  int64_t count = 0;            // n
  int64_t rows = 0, width = 0;  // B, T
  int64_t tokens = 0;           // that the model reads, without padding
};
TargetBatch find_targets(Batch batch);                  // on the CPU
TargetBatch to_device(TargetBatch, at::Device device);  // without waiting for it

struct Losses {
  at::Tensor each;         // (n), fp32
  at::Tensor predictions;  // (n,vocabulary), (n,classes) or (n): what the model said
};
Losses losses(Model& model, const TargetBatch& batch, Context context = {});

}  // namespace horner
