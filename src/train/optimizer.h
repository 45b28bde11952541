// AdamW (arXiv:1711.05101) on two flat vectors: weights that decay, and weights that do not.
//
//   g <- g min(1, clip / |g|)                         |g| over all parameters
//   m = b1 m + (1 - b1) g,  s = b2 s + (1 - b2) g^2
//   w = (1 - lr decay) w - lr m^ / (sqrt(s^) + eps)   m^ = m / (1 - b1^t), s^ = s / (1 - b2^t)
//   e = ema e + (1 - ema) w                           if averaged weights are wanted
//
// A parameter decays if it is a matrix: two dimensions or more, and its name ends in weight,
// embedding or positions (so no bias, norm, decay rate or coefficient does).
//
// Each parameter may have a share of the learning rate of its own. Then there are two vectors for each share. A parameter with
// share 0 is in no vector: it stays as it is and gets no gradient.
//
// Every parameter and its gradient are views of the flat vectors. So clipping, the step, averaging and the reduction over
// processes are a few calls, for any number of tensors.
//
// Several processes may share the vectors out. A vector is cut into stretches, and each of R processes owns 1/R of
// every stretch.
//
//   shard        a process holds, of n numbers                            bytes per parameter
//   none         w, g, m, s                                               16
//   optimizer    w, g, and its share of m, s                              8 + 8 / R
//   full         its share of w, g, m, s; a block's w and g for a while   16 / R + those
//
// The averaged weights take 4 bytes more, or 4 / R.
#pragma once

#include <functional>

#include "io/safetensors.h"
#include "train/train.h"

namespace horner {

enum class Shard { none, optimizer, full };
Shard shard_of(const TrainOptions& options);

// This process among those that share the vectors out, and how it hears of the others.
struct Sharing {
  Shard shard = Shard::none;
  int64_t rank = 0, world = 1;
  std::function<void(at::Tensor)> sum;                           // over all processes, in place
  std::function<void(at::Tensor whole, at::Tensor own)> gather;  // puts all processes' own together
};

class OptimizerSource;

// The share of the learning rate that a parameter learns with, by its name; none: 1 for all.
using RateShare = std::function<double(const std::string& parameter)>;

class Optimizer {
 public:
  // Moves the model's parameters into flat vectors; they must be fp32. With Shard::full a parameter has no memory afterwards:
  // GatheredBlocks (train/gathered.h) gives it some. `device`: of the vectors; none: that of the parameters.
  explicit Optimizer(
      torch::nn::Module& model,
      const OptimOptions& options,
      Sharing share = {},
      std::optional<at::Device> device = {},
      const RateShare& rate = {}
  );

  struct Piece {
    std::string name;
    at::Tensor weight;   // the parameter
    int64_t begin, end;  // in the group's vectors
  };
  struct Stretch {       // of whole pieces
    int64_t begin, end;  // in the group's vectors; a multiple of the number of processes
    int64_t unit;        // 0: outside of the blocks; l + 1: block l
    at::Tensor weights, gradients, mean, square, average;  // what this process owns of it
    at::Tensor whole;  // with Shard::full: all its weights, without memory most of the time
    std::vector<size_t> pieces;
  };
  struct Group {
    std::string name;
    double decay = 0;
    double rate = 1;  // share of the learning rate
    int64_t length = 0;
    at::Tensor weights, gradients;          // (length); undefined with Shard::full
    at::Tensor mean, square, average;       // what this process owns; average where ema > 0
    at::Tensor own_weights, own_gradients;  // only with Shard::full
    std::vector<Piece> pieces;
    std::vector<Stretch> stretches;
  };

  void zero_gradients();
  // One step with learning rate lr; returns the norm of the gradient before clipping, on its
  // device. A gradient that is not finite changes nothing. Nothing waits for the device.
  at::Tensor step(const at::Tensor& lr);  // (1), of rate_type
  at::Tensor step(double lr);
  // The fused kernel reads a rate of this type: fp32 on a GPU, fp64 on a CPU.
  static at::ScalarType rate_type(at::Device device) {
    return device.is_cuda() ? at::kFloat : at::kDouble;
  }
  // The first parameter whose gradient is not finite, else the one with the largest:
  // "not finite in group matrices: layer_0.mixer.q_weight".
  std::string worst_gradient() const;

  // While it lives, the model has the averaged weights; does nothing if there are none. All processes do it together if they
  // share the vectors out.
  class Averaged {
   public:
    explicit Averaged(Optimizer& optimizer) : optimizer_(optimizer) { optimizer_.swap_average(); }
    Averaged(const Averaged&) = delete;
    Averaged& operator=(const Averaged&) = delete;
    ~Averaged();

   private:
    Optimizer& optimizer_;
  };

  // Numbers begin .. end of a parameter, which one process owns.
  struct Owned {
    const Piece* piece;
    const Stretch* stretch;
    int64_t begin, end;  // in the parameter
    int64_t at;          // in the vectors of the stretch
    at::Tensor of(const at::Tensor& own) const { return own.narrow(0, at, end - begin); }
  };
  std::vector<Owned> owned(int64_t rank) const;
  // What this process needs to go on: whole tensors, or of a shared vector the numbers that it owns, flat.
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  // `model`: the file of weights, or of averaged weights.
  void load(const OptimizerSource& source, const Safetensors& model);
  std::vector<Group>& groups() { return groups_; }
  const std::vector<Group>& groups() const { return groups_; }
  const Sharing& share() const { return share_; }
  // Brings the weights that others own into this process. Nothing to do except with Shard::optimizer.
  void gather_weights();
  int64_t bytes() const;  // of all vectors that this process holds

 private:
  void swap_average();
  void collect(torch::nn::Module& model, const RateShare& rate);
  Group& group_of(bool decays, double rate);
  void cut(Group& group) const;
  void lay_out(Group& group) const;
  void allocate(Group& group, at::Device device) const;

  const OptimOptions o_;
  const Sharing share_;
  std::vector<Group> groups_;
  at::Tensor steps_;  // fp32 scalar t, which the fused kernel reads
};

}  // namespace horner
