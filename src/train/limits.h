// Whether a run can fit into this machine at all; asked before anything is built or written.
#pragma once

#include "tasks/task.h"
#include "train/train.h"

namespace horner {

double memory_of(at::Device device);  // bytes; 0: not known

// Bytes that each of `processes` holds of weights, gradients and moments by train.shard (train/optimizer.h). Blocks that are
// gathered for a while count: the weights and gradients of two of them, and of what is outside of the blocks.
double weight_bytes(const TrainOptions& resolved, int64_t processes);

// Bytes that a run holds at least: weights with gradients and moments, a batch, and what each layer keeps of its part of it.
double least_bytes(const TrainOptions& resolved, const TaskShape& shape);

// UsageError with both numbers if the least is more than the device has.
void check_memory(const TrainOptions& resolved, const TaskShape& shape);

// UsageError if these processes cannot share the run out in the way that it asks for. 0: torchrun has not started it.
void check_processes(const TrainOptions& resolved, const TaskShape& shape, int64_t processes);

// The same for one sequence of T tokens through the model, without gradients.
void check_length(const ModelOptions& model, int64_t T, at::Device device, const char* setting);

}  // namespace horner
