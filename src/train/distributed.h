// Several processes that train one model: each takes its share of every batch, and the gradients
// are summed over all of them while backward still runs.
//
// torchrun --no-python starts them (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). Gloo sends gradients on a CPU, and
// the few numbers on which processes agree. NCCL sends gradients on GPUs.
//
// The flat gradient vectors are cut into buckets of 25 MB, starting at their end, where the backward begins. A bucket is sent
// when all its parameters have their gradients; the order of buckets is always the same.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "train/optimizer.h"

namespace horner {

class Processes {
 public:
  // Null if this is the only process. DeviceError or UsageError if the group cannot be formed.
  static std::shared_ptr<Processes> join(at::Device device);

  int64_t rank() const { return rank_; }
  int64_t world() const { return world_; }
  bool first() const { return rank_ == 0; }

  // The sum of each number over all processes. RunError when one of them is gone.
  std::vector<double> sum(std::vector<double> numbers);
  void wait() { sum({0}); }  // until all are here

  // From now on `optimizer`'s gradients are reduced between begin() and end(), which enclose the last backward of a step.
  void attach(Optimizer& optimizer);
  void begin();
  void end();

  struct Bucket {
    at::Tensor gradients;  // a stretch of a flat vector
    int64_t parameters = 0, missing = 0;
    c10::intrusive_ptr<c10d::Work> work;
  };
  void arrived(size_t bucket);

 private:
  void send_ready(bool all);

  int64_t rank_ = 0, world_ = 1;
  c10::intrusive_ptr<c10d::Backend> control_, gradients_;
  std::vector<Bucket> buckets_;
  size_t sent_ = 0;
  bool reducing_ = false;
};

// What libhorner_cuda.so provides: a backend for gradients on GPUs.
using MakeNccl = c10::intrusive_ptr<c10d::Backend> (*)(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int world
);
MakeNccl& make_nccl();
MakeNccl cuda_make_nccl();  // in libhorner_cuda.so

bool first_process();  // by RANK alone, before a group is joined

// The device of this process: cuda means cuda:LOCAL_RANK under torchrun.
std::string local_device(const std::string& device);

}  // namespace horner
