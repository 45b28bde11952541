// What a classifier of images loses if its attention may not read some tokens (arXiv:2412.06590, the masking test).
//
//   w   the weights of a layer (mixer.map), zero where masked
//   softmax, linear   the others are divided by their sum;   InLine: the others share what was taken, w_s += lost / n
//   local    the s x s tokens around the query;   random   as many others, drawn for each query
//
// The model is run layer by layer on the CPU. Without a mask it answers as the model itself.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/model.h"
#include "tasks/task.h"

namespace horner {

struct PatchMask {
  int64_t side = 0;  // 3: a square of 3 x 3 tokens; 0: nothing is masked
  bool local = true;
};

// 1 where token t may not read token s.   (T,T), T = columns^2, drawn by `seed` if not local
at::Tensor masked_tokens(const PatchMask& mask, int64_t columns, uint64_t seed);

// The logits of images as (B,T,d) features; every mixer has one output projection and no residual.
at::Tensor masked_forward(Model& model, const at::Tensor& features, const at::Tensor& masked);

// Share of the first `examples` test images whose class the masked model says.
double masked_accuracy(Model& model, const Task& task, const PatchMask& mask, int64_t examples);

// Mean over layers, heads and tokens of the share of |w| in the 3 x 3 tokens around the query; of equal weights 9/T, less
// at edges.
double local_share(Model& model, const at::Tensor& features);

}  // namespace horner
