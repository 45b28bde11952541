// What a model costs before it is trained.
#pragma once

#include "tasks/task.h"
#include "train/train.h"

namespace horner {

// Multiplications and additions of matrix products and attention in one forward of B x T tokens, counted from the calls that
// torch makes. Element-wise work is not counted. A causal attention kernel counts half of its T x T.
double count_flops(const std::function<void()>& work);

struct Cost {
  int64_t parameters = 0, state_bytes = 0;
  double forward_flops_per_token = 0, flops_per_token = 0;  // training: three times the forward
  double weight_bytes = 0;      // weights, gradients and AdamW's two moments, in fp32
  double activation_bytes = 0;  // kept between forward and backward, of a part of a batch
  int64_t processes = 1;        // that share the batch out, and what train.shard says
  double weight_bytes_each = 0, activation_bytes_each = 0;  // of each process
  Json json() const;
};
// Measured on one example of the task on the CPU. 0 processes: those of torchrun.
Cost cost_of(const TrainOptions& resolved, const Task& task, int64_t processes = 0);

// FLOP/s of dense matrix products according to the manufacturer; 0: not known.
double stated_flops(at::Device device, std::string_view precision);

double memory_now(at::Device device
);  // bytes: of the process on a CPU, of torch's tensors on a GPU
// Since the start; of a GPU since restart_memory_peak. NaN in a thread with a SharedDevice.
double memory_peak(at::Device device);
void restart_memory_peak(at::Device device);

// While it lives, this thread shares its GPU with other runs of this process, so the peak of its own run is not known.
class SharedDevice {
 public:
  SharedDevice();
  SharedDevice(const SharedDevice&) = delete;
  SharedDevice& operator=(const SharedDevice&) = delete;
  ~SharedDevice();
};

}  // namespace horner
