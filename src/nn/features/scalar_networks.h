// R networks 1 -> E -> 1 on every number of a tensor. On a GPU the (n,R,E) hidden values are never formed; luna.cpp has the
// same in plain operations.
//
//   z = u f1 + b1,   y_r = b2_r + sum_e f2_re relu(z_re)
//   du = sum_re [z_re > 0] dy_r f2_re f1_re,   df2 = sum_u dy relu(z),   df1 = f2 sum_u [z > 0] dy u,   db1 = f2 sum_u [z > 0] dy
//
// y_r is piecewise linear in u: straight between two of its E kinks u = -b1 / f1. The kernels sort the kinks, once a call, and
// then a number needs a search and R products instead of R E. The sums over u come from sums over the numbers of each piece.
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

struct Networks {
  at::Tensor f1, b1, f2, b2;  // (R,E) three times, (R); fp32
  at::Tensor shift = {};  // (M) in fp32, M a divisor of 32: added to u, whose last dimension is M
  bool positive = false;  // y = max(y, 0)
  double scale = 1;       // y = scale y, at the end
};

bool can_apply(const at::Tensor& u, const Networks&);
at::Tensor apply_networks(const at::Tensor& u, const Networks&);  // (...) fp32 or bf16 -> (...,R)

struct NetworkGrads {
  at::Tensor du, f1, b1, f2, b2;
  at::Tensor shift = {};  // where it is given
};
// What libhorner_cuda.so provides. `tables` is what the forward looked up, for the backward.
struct NetworkKernels {
  void (*forward
  )(const at::Tensor& u, const Networks&, at::Tensor& y, at::Tensor& tables) = nullptr;
  NetworkGrads (*backward
  )(const at::Tensor& u, const Networks&, const at::Tensor& tables, const at::Tensor& dy) = nullptr;
};
NetworkKernels& network_kernels();
NetworkKernels cuda_network_kernels();  // in libhorner_cuda.so

}  // namespace horner
