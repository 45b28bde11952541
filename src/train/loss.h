// The loss of each target of a batch.
//
//   tokens    -log softmax(logits_t)[target_t]   at positions that have a target
//   labels    -log softmax(logits)[label]        of each sequence
//   numbers   (prediction_t - value_t)^2         at positions that have a value
//
// The head is computed only at positions that have a target.
#pragma once

#include <array>

#include "model/model.h"
#include "tasks/task.h"

namespace horner {

// A batch on its device, with the places of its targets.
struct TargetBatch {
  Batch batch;
  at::Tensor places;            // (n): t + T row of each target; for labels: the rows
  at::Tensor answers;           // (n): the right token, class or number
  at::Tensor weights;           // (n): 0 for padding, else 1; undefined: all count
  int64_t count = 0;            // targets that count
  int64_t rows = 0, width = 0;  // B, T
  int64_t tokens = 0;           // tokens that the model reads, without padding
  bool goes_on = false;         // elsewhere, from the state after these tokens
  at::Tensor indices;           // (B): of a batch that a GPU will make
  std::function<GpuBatch(const at::Tensor&)> make;  // from its indices; empty: it is made already

  TargetBatch made() const;  // on the GPU that the indices lie on
  // What a device needs; cu_seqlens stays on the CPU, where it is read.
  std::array<at::Tensor*, 7> tensors() {
    return {&batch.tokens, &batch.features, &batch.lengths, &places, &answers, &weights, &indices};
  }
  std::array<const at::Tensor*, 7> tensors() const {
    return {&batch.tokens, &batch.features, &batch.lengths, &places, &answers, &weights, &indices};
  }
};
TargetBatch find_targets(Batch batch);  // on the CPU
// If its rows have different numbers of targets: with places that do not count, so that few shapes occur over many batches.
TargetBatch with_padded_targets(TargetBatch);  // on the CPU
// Examples that `device` makes from their indices if the task can, else made on the CPU in memory that it can copy from.
TargetBatch training_batch(const Task&, const std::vector<int64_t>& indices, at::Device device);
TargetBatch in_pinned_memory(TargetBatch);              // from where a GPU can copy it meanwhile
TargetBatch to_device(TargetBatch, at::Device device);  // on the current stream, without waiting

struct Losses {
  at::Tensor each;         // (n), fp32
  at::Tensor predictions;  // (n,vocabulary), (n,classes) or (n): the model's answers
};
Losses losses(Model& model, const TargetBatch& batch, Context context = {});
// The sum of the losses, for training. On a GPU the logits are never held whole (nn/head_loss).
at::Tensor loss_sum(Model& model, const TargetBatch& batch, Context context = {});

}  // namespace horner
