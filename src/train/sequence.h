// Processes that share out the tokens of a sequence (train.sequence_parallel = n): part r of T / n tokens is in process r of n.
//
//   forward    block l: process r gets the state after part r - 1 from process r - 1, runs its tokens from this state on, and
//              sends the state after them to process r + 1
//   backward   block l: process r gets the gradient of the state that it sent, runs its nodes, and sends the gradient of the
//              state that it got to process r - 1
//
// So it is exact for every mixer that reads in one direction, with no work done twice. While process r computes block l,
// process r - 1 computes block l + 1: of L + n - 1 turns each process works in L. What is sent is a state for each block and row: K V
// numbers per head for `linear`, the last keys and values for `window`, all keys and values for softmax.
//
// The processes r, r + 1, .. r + n - 1 (r a multiple of n) share the same examples.
#pragma once

#include "model/model.h"
#include "train/distributed.h"
#include "train/loss.h"

namespace horner {

// Tokens of part i of n, with their targets. Batches are not packed, and n divides T.
TargetBatch part_of_tokens(const TargetBatch& batch, int64_t i, int64_t n);

class PassedStates : public BlockWatch {
 public:
  PassedStates(std::shared_ptr<Processes> processes, int64_t n);

  int64_t part() const { return processes_->rank() % n_; }
  int64_t parts() const { return n_; }

  // While it lives, forwards and backwards of `model` are those of a part of the tokens.
  class Passing {
   public:
    Passing(PassedStates& states, Model& model) : model_(model) { model_.watch(&states); }
    Passing(const Passing&) = delete;
    Passing& operator=(const Passing&) = delete;
    ~Passing() { model_.watch(nullptr); }

   private:
    Model& model_;
  };
  void finish();  // waits until all that was sent has arrived

  void enter(int64_t layer, at::Tensor& x, at::Tensor& delta, State& state) override;
  void leave(int64_t layer, at::Tensor& x, at::Tensor& delta, State& state) override;

  struct Shape {  // of a part of a state
    std::vector<int64_t> sizes;
    at::ScalarType type;
    bool has_gradient() const { return at::isFloatingType(type); }
  };
  void send(const std::vector<at::Tensor>& tensors, int64_t to, int64_t tag);
  void receive(const std::vector<at::Tensor>& tensors, int64_t from, int64_t tag);

 private:
  std::string key(int64_t from, int64_t layer, const at::Tensor& x) const;
  std::vector<Shape> told(int64_t layer, const at::Tensor& x, const State& state);
  std::vector<Shape> heard(int64_t layer, const at::Tensor& x);

  const std::shared_ptr<Processes> processes_;
  const int64_t n_;
  const c10::intrusive_ptr<c10d::Backend> group_;
  std::map<std::string, std::vector<Shape>> shapes_;  // of states that were sent or received
  struct Sent {
    Processes::Work work;
    at::Tensor tensor;
  };
  std::vector<Sent> sent_;  // since the last finish
};

}  // namespace horner
