// Gates of recurrences: decays from their logits, and values scaled per head.
//
//   decay         g = -c softplus(s z + b)      log sigmoid(z) / t is s = -1, c = 1/t;  Mamba's is s = 1, c = e^{A_log}
//     p = sigmoid(s z + b):  dz = -c s p dg     db = sum over rows of -c p dg     dc = sum over rows of -softplus dg
//     k = 1 - e^g, keys that a decay leaves room for (MetaLA): then dg - e^g dk takes the place of dg
//
//   elu1          y = z + 1 for z > 0, else e^z   dz = dy for z > 0, else e^z dy
//
//   scale_heads   y = x s, one s per head       dx = s dy     ds = x . dy
//
//   augment       y = o + sigmoid(w v) + offset,  w = sum_i q_i k_i a_i, one w per head (MetaLA)        p = sigmoid(w v)
//     do = dy     dv = dy p (1 - p) w     dw = dy p (1 - p) . v     dq = dw k a     dk = dw q a     da = sum over rows of dw q k
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

struct Decay {
  bool negated = false;  // s = -1
  at::Tensor b;          // (n) fp32 or undefined: 0
  at::Tensor c;          // (n) fp32 or undefined: 1
  double scale = 1;      // c is multiplied by this
};
struct DecayAndKeys {
  at::Tensor g, k;  // fp32; in the type of z
};
at::Tensor decay(const at::Tensor& z, const Decay& d);             // (..,n) -> (..,n) in fp32
DecayAndKeys decay_and_keys(const at::Tensor& z, const Decay& d);  // (..,n) -> (..,n)
at::Tensor elu1(const at::Tensor& z);                              // in the type of z
at::Tensor scale_heads(const at::Tensor& x, const at::Tensor& s);  // (..,H,P), (..,H)

struct Augment {
  at::Tensor q, k;  // (B,T,H,K)
  at::Tensor a;     // (H,K) fp32
  at::Tensor v, o;  // (B,T,H,V)
  // -1/2 keeps y near 0 for a norm that a constant does not change: beside 1/2, bf16 would round a small o away.
  double offset = 0;
};
at::Tensor augment(const Augment& in);  // (B,T,H,V)

// The nodes; used by the functions above where kernels are.
at::Tensor fused_augment(const Augment& in);
at::Tensor fused_decay(const at::Tensor& z, const Decay& d);
DecayAndKeys fused_decay_and_keys(const at::Tensor& z, const Decay& d);
at::Tensor fused_elu1(const at::Tensor& z);
at::Tensor fused_scale_heads(const at::Tensor& x, const at::Tensor& s);

struct DecayGrads {
  at::Tensor dz, db, dc;  // db and dc: (parts,n), to be summed
};
struct AugmentGrads {
  at::Tensor dq, dk, da, dv;  // da: (parts,H,K), to be summed
};
struct GateKernels {
  // k and dk are undefined where the keys are not wanted.
  DecayAndKeys (*decay)(const at::Tensor& z, const Decay&, bool keys) = nullptr;
  DecayGrads (*decay_backward
  )(const at::Tensor& z, const Decay&, const at::Tensor& dg, const at::Tensor& dk) = nullptr;
  at::Tensor (*elu1)(const at::Tensor& z) = nullptr;
  at::Tensor (*elu1_backward)(const at::Tensor& z, const at::Tensor& dy) = nullptr;
  at::Tensor (*scale)(const at::Tensor& x, const at::Tensor& s) = nullptr;
  std::pair<at::Tensor, at::Tensor> (*scale_backward
  )(const at::Tensor& x, const at::Tensor& s, const at::Tensor& dy) = nullptr;
  at::Tensor (*augment)(const Augment&) = nullptr;
  AugmentGrads (*augment_backward)(const Augment&, const at::Tensor& dy) = nullptr;
  bool (*augment_takes)(const Augment&) = nullptr;
};
GateKernels& gate_kernels();
GateKernels cuda_gate_kernels();  // in libhorner_cuda.so
constexpr int64_t kWidestGate = 4096;

}  // namespace horner
