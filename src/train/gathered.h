// Weights that no process holds whole (train.shard = full): a block has them while it runs, forward and backward.
//
//   forward    before block l: gather its weights;                     after it: free them
//   backward   before block l: gather its weights, zero its gradients; after it: reduce-scatter the gradients, free both
//
// The weights of the next block are on their way while a block runs, and so are the gradients of the block before. So a process
// has the weights and the gradients of two blocks at most. What is outside of the blocks (embedding, head, last norm) is
// gathered for a whole step. A node before and a node after each block do the work of the backward. Autograd runs ready nodes in the
// reverse order of their making, so the node before a block runs after all nodes of the block.
//
// Every process must run the same forwards and backwards.
#pragma once

#include "model/model.h"
#include "train/distributed.h"

namespace horner {

class GatheredBlocks : public BlockWatch {
 public:
  // From now on `model` runs with weights that are gathered for each block.
  GatheredBlocks(Model& model, Optimizer& optimizer, std::shared_ptr<Processes> processes);
  GatheredBlocks(const GatheredBlocks&) = delete;
  GatheredBlocks& operator=(const GatheredBlocks&) = delete;
  ~GatheredBlocks() override;

  // What a forward needs outside of the blocks. with_gradients: the backwards until `close` add theirs.
  void open(bool with_gradients);
  void close();  // the process then has its part of all gradients

  // While it lives, the model can run forwards.
  class Open {
   public:
    explicit Open(GatheredBlocks* blocks) : blocks_(blocks) {
      if (blocks_ != nullptr) blocks_->open(false);
    }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
    ~Open() {
      if (blocks_ != nullptr) blocks_->drop();
    }

   private:
    GatheredBlocks* blocks_;
  };

  // All parameters, on the CPU. Every process takes part; only those that `keep` get them.
  std::vector<std::pair<std::string, at::Tensor>> whole_weights(bool keep);

  void enter(int64_t layer, at::Tensor& x, at::Tensor& delta, State& state) override;
  void leave(int64_t layer, at::Tensor& x, at::Tensor& delta, State& state) override;
  void begin_backward(int64_t unit);
  void end_backward(int64_t unit);

 private:
  struct Stretch {
    Optimizer::Group* group;
    Optimizer::Stretch* of;
    Processes::Work gathering;
    at::Tensor gradients, sum;  // of all numbers; what this process gets of the sum
    Processes::Work reducing;
  };
  using Unit = std::vector<Stretch>;  // of matrices and of vectors
  void begin_gather(int64_t unit);    // does nothing if it has begun, or if there is no such unit
  void gather(int64_t unit);
  void free(int64_t unit);
  void make_gradients(int64_t unit);
  void reduce(int64_t unit);
  void add_reduced();
  void drop();  // without exceptions

  Model& model_;
  const std::shared_ptr<Processes> processes_;
  std::vector<Unit> units_;  // 0: outside of the blocks; l + 1: block l
  int64_t reducing_ = -1;    // the unit whose gradients are on their way; -1: none
};

}  // namespace horner
