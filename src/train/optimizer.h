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
// Every parameter and its gradient are views of the flat vectors. So clipping, the step, averaging and the reduction over
// processes are a few calls, for any number of tensors.
#pragma once

#include "io/safetensors.h"
#include "train/train.h"

namespace horner {

class Optimizer {
 public:
  // Moves the model's parameters into flat vectors on their device; they must be fp32.
  Optimizer(torch::nn::Module& model, const OptimOptions& options);

  struct Piece {
    std::string name;
    at::Tensor weight;   // the parameter
    int64_t begin, end;  // in the group's vectors
  };
  struct Group {
    std::string name;
    double decay;
    at::Tensor weights, gradients, mean, square, average;  // (n); average where ema > 0
    std::vector<Piece> pieces;
  };

  void zero_gradients();
  // One step with learning rate lr; returns the norm of the gradient before clipping, on its
  // device. A gradient that is not finite changes nothing.
  at::Tensor step(double lr);
  // The first parameter whose gradient is not finite, else the one with the largest:
  // "not finite in group matrices: layer_0.mixer.q_weight".
  std::string worst_gradient() const;

  // While it lives, the model has the averaged weights; does nothing if there are none.
  class Averaged {
   public:
    explicit Averaged(Optimizer& optimizer) : optimizer_(optimizer) { optimizer_.swap_average(); }
    Averaged(const Averaged&) = delete;
    Averaged& operator=(const Averaged&) = delete;
    ~Averaged() { optimizer_.swap_average(); }

   private:
    Optimizer& optimizer_;
  };

  std::vector<std::pair<std::string, at::Tensor>> state() const;
  void load(const Safetensors& file);
  std::vector<Group>& groups() { return groups_; }

 private:
  void swap_average();

  const OptimOptions o_;
  std::vector<Group> groups_;
  at::Tensor steps_;  // fp32 scalar t, which the fused kernel reads
};

}  // namespace horner
