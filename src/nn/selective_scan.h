// S6's recurrence on a GPU. The inputs of `scan` would be N times as large as the inputs of S6, so they are never formed.
//
//   h_t = e^{A dt_t} h_{t-1} + dt_t u_t B_t        y_t = C_t . h_t        N numbers h for each of E channels
//
// Backward, with dh_t the whole gradient of h_t:
//   dh_t = C_t dy_t + e^{A dt_{t+1}} dh_{t+1}      dC_t = sum_e dy_t h_t      dB_t = sum_e dt_t u_t dh_t
//   x_t = dh_t . B_t,  w_t = dh_t h_{t-1} e^{A dt_t}:   du_t = dt_t x_t,  ddt_t = u_t x_t + A . w_t,  dA = sum_t dt_t w_t
//
// With a gate the kernel also computes dt = softplus(step) and o = (y + D u) silu(z), so dt and y never lie in memory; the
// backward computes them again.
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

struct Selective {
  at::Tensor u;       // (B,T,E) bf16 or fp32
  at::Tensor dt;      // (B,T,E) fp32; with a gate the step before its softplus, as u
  at::Tensor A;       // (E,N), below 0
  at::Tensor B, C;    // (B,T,N)
  at::Tensor z = {};  // (B,T,E) as u, parts of wider rows or not; with D (E) in fp32: a gate
  at::Tensor D = {};
};

bool can_scan(const Selective&);
struct Scanned {
  at::Tensor y, last;  // (B,T,E) fp32, or o in the type of u; h_T (B,E,N), without a gradient
};
Scanned selective_scan(const Selective&);

// What libhorner_cuda.so provides. `marks`: h before every 32nd token, from which the backward starts.
struct ScanGrads {
  at::Tensor du, ddt, dA, dB, dC;
  at::Tensor dz = {}, dD = {};
};
struct SelectiveKernels {
  Scanned (*forward)(const Selective&, at::Tensor& marks) = nullptr;
  ScanGrads (*backward)(const Selective&, const at::Tensor& marks, const at::Tensor& dy) = nullptr;
};
SelectiveKernels& selective_kernels();
SelectiveKernels cuda_selective_kernels();  // in libhorner_cuda.so

}  // namespace horner
