// R networks 1 -> E -> 1 on every number of a tensor. On a GPU the (n,R,E) hidden values are never stored; luna.cpp has the
// same in plain operations.
//
//   z = u f1 + b1,   y_r = b2_r + sum_e f2_re relu(z_re)
//   du = sum_re [z_re > 0] dy_r f2_re f1_re,   df2 = sum_u dy relu(z),   df1 = f2 sum_u [z > 0] dy u,   db1 = f2 sum_u [z > 0] dy
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

struct Networks {
  at::Tensor f1, b1, f2, b2;  // (R,E) three times, (R); fp32
};

bool can_apply(const at::Tensor& u, const Networks&);
at::Tensor apply_networks(const at::Tensor& u, const Networks&);  // (...) fp32 -> (...,R)

// What libhorner_cuda.so provides. sums: (parts, 3, R E): of [z > 0] dy u, of [z > 0] dy, of dy relu(z).
struct NetworkKernels {
  void (*forward)(const at::Tensor& u, const Networks&, at::Tensor& y) = nullptr;
  at::Tensor (*backward
  )(const at::Tensor& u, const Networks&, const at::Tensor& dy, at::Tensor& du) = nullptr;
};
NetworkKernels& network_kernels();
NetworkKernels cuda_network_kernels();  // in libhorner_cuda.so

}  // namespace horner
