// Parts of layers that one kernel computes on a GPU, where plain operations pass over memory many times.
//
//   part         computes                                  bytes per number in bf16, forward + backward
//                                                          plain operations    kernel
//   add_norm     x + y in fp32, and its RMS norm           24 + 44             12 + 16
//   gated_norm   norm(x) w act(z), per head                30 + 50              6 + 10
//   skip_norm    RMS norm of (x + D u) SiLU(z), times w    46 + 80              8 + 14
//   swiglu       SiLU(a) b                                 10 + 18              6 + 10
//
// Each part is one node of autograd that keeps its inputs and computes the rest again. The node also runs on plain
// operations (plain.cpp), so its backward is tested in fp64 on a CPU. `fusable` decides where the node is used.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>

namespace horner {

enum class Gate : int { none = 0, silu = 1, sigmoid = 2 };

// Whether kernels take these tensors: all on a GPU, of one type (bf16 or fp32), rows of whole units of 8 numbers.
// Undefined tensors are not asked.
bool fusable(std::initializer_list<at::Tensor> tensors);

struct AddNorm {
  at::Tensor sum, norm;  // (..,D): fp32; in the type that is asked for
};

// The nodes. x (..,n), weight (n) or (H,n) or undefined; y, gate undefined: none.
AddNorm fused_add_norm(
    const at::Tensor& x,
    const at::Tensor& y,
    const at::Tensor& weight,
    double eps,
    at::ScalarType type
);
at::Tensor fused_gated_norm(
    const at::Tensor& x,
    const at::Tensor& weight,
    const at::Tensor& gate,
    double eps,
    bool layer,
    Gate act
);
at::Tensor fused_skip_norm(
    const at::Tensor& x,
    const at::Tensor& u,
    const at::Tensor& D,
    const at::Tensor& gate,
    const at::Tensor& weight,
    double eps
);
bool norm_fusable(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& gate);

at::Tensor fused_swiglu(const at::Tensor& a, const at::Tensor& b);
at::Tensor swiglu(const at::Tensor& a, const at::Tensor& b);  // SiLU(a) b, fused or not

}  // namespace horner
