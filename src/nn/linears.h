// Several projections of one input: y_i = x W_i^T + b_i.
//
//   dx = sum over i of dy_i W_i      dW_i = dy_i^T x      db_i = sum over tokens of dy_i
//
// On a GPU they are one node of autograd: each product of the backward adds to dx where it lies, so no pass over memory
// sums the parts, and dW_i comes out of its product in the type of W_i, without a cast.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "nn/linear.h"

namespace horner {

// Puts weights of one width into one memory, in this order, so that bf16 projections without gradients are one product.
void lay_together(const std::vector<at::Tensor>& weights);

std::vector<at::Tensor> project(const at::Tensor& x, const std::vector<Linear>& list);
std::vector<at::Tensor> project_by_node(const at::Tensor& x, const std::vector<Linear>& list);

// auto [q, k, v] = linears(x, q_, k_, v_);   A projection without a weight gives an undefined tensor.
template <class... L>
std::array<at::Tensor, sizeof...(L)> linears(const at::Tensor& x, const L&... l) {
  std::array<at::Tensor, sizeof...(L)> y;
  const std::vector<at::Tensor> all = project(x, {l...});
  std::copy(all.begin(), all.end(), y.begin());
  return y;
}

}  // namespace horner
