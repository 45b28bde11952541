// Several processes that train one model: each takes its share of every batch, and the gradients
// are summed over all of them while backward still runs.
//
// torchrun --no-python starts them (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). Gloo sends gradients on a CPU, and
// the few numbers on which processes agree. NCCL sends gradients on GPUs.
//
// The flat gradient vectors are cut into stretches of 25 MB, starting at their end, where the backward begins. A stretch is
// sent when all its parameters have their gradients; the order of stretches is always the same. Each process gets the sum, or with
// Shard::optimizer the part of the sum that it owns. Gloo has no reduce-scatter of its own: c10d sums everything in a copy and
// keeps that part.
#pragma once

#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/json.h"
#include "train/heartbeat.h"
#include "train/optimizer.h"

namespace horner {

class Processes {
 public:
  // Null if this is the only process. From now on a process that does not come, or is lost, is reported within a minute.
  static std::shared_ptr<Processes> meet();
  // When the data are read: waits until all have done so. DeviceError or UsageError if the group cannot be formed.
  void connect(at::Device device);
  // UsageError in every process if one of them has other settings than the first; it names the setting.
  void compare(const Json& settings);
  void leave();  // at the end, when all are done: from now on none is missed

  int64_t rank() const { return rank_; }
  int64_t world() const { return world_; }
  bool first() const { return rank_ == 0; }

  // The sum of each number over all processes. RunError when one of them is gone.
  std::vector<double> sum(std::vector<double> numbers);
  void wait() { sum({0}); }  // until all are here

  using Work = c10::intrusive_ptr<c10d::Work>;
  // Tensors on the device of the run. `own` (n) of process r lies at r n of `whole` (n world), and may be a view of it.
  Work all_gather(at::Tensor whole, at::Tensor own);
  Work reduce_scatter(at::Tensor whole, at::Tensor own);
  void finish(const Work& work);  // RunError when a process is gone
  c10::intrusive_ptr<c10d::Backend> make_group(const std::string& name);  // of all processes
  // What `call` starts; RunError when a process is gone.
  template <class Call>
  Work started(Call&& call) {
    try {
      return call();
    } catch (const std::exception& error) {
      lost(error);
    }
  }
  void say(const std::string& key, const Json& value);  // to whoever hears it
  Json hear(const std::string& key);                    // waits until it is said
  Sharing share(Shard shard);  // this process's; null functions with Shard::none

  // From now on `optimizer`'s gradients are reduced between begin() and end(), which enclose the last backward of a step.
  void attach(Optimizer& optimizer);
  void begin();
  void end();

  struct Bucket {
    at::Tensor gradients, own;  // a stretch of a flat vector, and what this process owns of it
    int64_t parameters = 0, missing = 0;
    Work work;
  };
  void arrived(size_t bucket);

 private:
  c10::intrusive_ptr<c10d::Backend> make_gloo(const std::string& name);
  void send_ready(bool all);
  [[noreturn]] void lost(const std::exception& error) const;

  at::Device device_ = at::kCPU;
  int64_t rank_ = 0, world_ = 1;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::Backend> control_, gradients_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::vector<Bucket> buckets_;
  size_t sent_ = 0;
  bool scatters_ = false;  // each process gets only what it owns
  bool reducing_ = false;
};

// Runs `work` in the first process. If it throws there, the others throw as well instead of waiting for ever. Null: there is
// only one process.
void in_first(Processes* processes, const std::function<void()>& work);
// The same for work of every process: all throw if one does.
void in_every(Processes* processes, const std::function<void()>& work);

// What libhorner_cuda.so provides: a backend for gradients on GPUs.
using MakeNccl = c10::intrusive_ptr<c10d::Backend> (*)(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int world
);
MakeNccl& make_nccl();
MakeNccl cuda_make_nccl();  // in libhorner_cuda.so

int64_t processes_here();  // WORLD_SIZE of torchrun, else 1
bool first_process();      // by RANK alone, before a group is joined

// The device of this process: cuda means cuda:LOCAL_RANK under torchrun.
std::string local_device(const std::string& device);

}  // namespace horner
