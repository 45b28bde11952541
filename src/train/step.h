// One step of training: forward, backward, clipping and AdamW.
//
//   work       g = grad of sum(losses) share, share = 1 / count;  lr = rates[s];  AdamW;  numbers[s mod kRing] = (sum, |g|);  s = s + 1
//
// The step number, the share, the learning rates and the results are tensors on the device, so the work needs nothing from the host and
// waits for nothing. On a GPU the work of each shape is run a few times, then recorded as a graph and replayed. Both ways
// start the same kernels with the same numbers, so they give the same bits. The work is not recorded where shapes change from
// step to step, where the batch is cut on the CPU (packed batches), or where several processes exchange gradients.
//
// The host reads results late: a copy to pinned memory is started, and its numbers are taken when it has arrived.
#pragma once

#include <c10/core/Event.h>

#include <deque>
#include <map>

#include "train/distributed.h"
#include "train/gathered.h"
#include "train/objective.h"
#include "train/replay.h"
#include "train/sequence.h"

namespace horner {

class Step {
 public:
  Step(
      Model& model,
      Optimizer& optimizer,
      const TrainOptions& resolved,
      at::Device device,
      std::shared_ptr<Processes> processes = nullptr,
      GatheredBlocks* gathered = nullptr,
      PassedStates* states = nullptr,
      const Objective* objective = nullptr  // null: the task's loss
  );
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step();

  void begin_at(int64_t step);  // the number of the next step

  // `count`: targets of all parts, and of all processes.
  void run(const std::vector<TargetBatch>& parts, double count);

  struct Numbers {
    int64_t step = 0;
    double loss = 0;   // the sum over this process's targets
    double count = 0;  // targets
    double norm = 0, lr = 0;
  };
  // Starts to copy the numbers of all steps so far to the host.
  void ask();
  // The numbers that have arrived, oldest first. wait: those of all steps so far.
  std::vector<Numbers> read(bool wait);

  int64_t replayed() const { return replayed_; }  // steps that were replays
  const std::string& not_recorded() const {
    return reason_;
  }  // why the last shape was not; empty: no failure

 private:
  static constexpr int64_t kRing = 64;       // steps whose numbers the device holds
  static constexpr int64_t kAhead = 4;       // steps that the host may be ahead of a GPU
  static constexpr int64_t kWarm = 3;        // steps before a shape is recorded
  static constexpr size_t kMostGraphs = 16;  // they share the memory of a step

  struct Shape {  // of the parts of a step
    int64_t seen = 0;
    std::vector<TargetBatch> inputs;  // what the graph reads
    std::unique_ptr<Replay> graph;
    bool fails = false;
  };
  using Key = std::vector<int64_t>;

  bool can_record(const std::vector<TargetBatch>& parts) const;
  void work(const std::vector<TargetBatch>& parts, const Context& context);
  void run_or_replay(const std::vector<TargetBatch>& parts, const Context& context);
  void wait_for_pace();
  void collect(bool wait);

  Model& model_;
  Optimizer& optimizer_;
  const TrainOptions o_;
  const at::Device device_;
  const std::shared_ptr<Processes> processes_;
  GatheredBlocks* const gathered_;  // of a model that no process holds whole; null: of another
  PassedStates* const states_;      // if processes share out the tokens of a sequence; else null
  const Objective* const objective_;
  const bool bf16_;
  at::Tensor rates_;    // (steps)
  at::Tensor number_;   // (1): of the step that comes next
  at::Tensor share_;    // 1 / count
  at::Tensor numbers_;  // (kRing,2)
  at::Tensor arrived_;  // (kRing,2), on the host
  std::optional<c10::Event> copied_;
  std::vector<c10::Event> ends_;  // of the last kAhead steps, on a GPU
  int64_t asked_ = 0;             // steps that the copy on its way holds; 0: there is none
  int64_t next_ = 0;              // the step that comes next
  std::deque<Numbers> unread_;    // on the device, without loss and norm
  std::vector<Numbers> ready_;    // arrived, not yet read
  std::map<Key, Shape> shapes_;
  int64_t replayed_ = 0;
  std::string reason_;
};

}  // namespace horner
