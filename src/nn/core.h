// The one op call inside a mixer, and what follows from it. A mixer without an op (`conv`) gives its system itself.
//
//   o_t = op(q, k, v, ..)_t / eta_t + skip_t v_t
//
// The dynamical-systems form (arXiv:2405.15731), per head, h (F,V), u and y (V):
//   h_t = Lambda_t h_{t-1} + B_t u_t        y_t = C_t h_t + D_t u_t        h_0 = 0
//
//   op        F          Lambda_t                        B_t               C_t
//   linear    K          exp(g_t) eta_{t-1}/eta_t        k_t / eta_t       scale q_t
//   power     C(K+N,N)   exp(g_t) eta_{t-1}/eta_t        m(k_t) / eta_t    W m(scale q_t)
//   attention T          eta_{t-1}/eta_t                 e_t / eta_t       e^{scale q_t.k_s}, all s
//   delta     K          (I - beta_t k_t^T k_t) e^{g_t}  beta_t k_t        scale q_t
//   scan      1          exp(g_t)                        1                 1
//
// A normaliser eta (the sum of the weights, or the mixer's own) cancels along the recurrence.
// Softmax has no finite F for every length; for a given T one slot per token is exact. DeltaNet's
// transition is not diagonal: outside the paper's form, and given as a matrix.
#pragma once

#include "ops/op.h"

namespace horner {

struct System {
  at::Tensor Lambda;  // (B,T,H,F) or (B,T,H,1): the diagonal; (B,T,H,F,F): a matrix
  at::Tensor B;       // (B,T,H,F)
  at::Tensor C;       // (B,T,H,F)
  at::Tensor D;       // (B,T,H)
  at::Tensor u;       // (B,T,H,V)
};

struct Core {
  const Op* op = nullptr;  // null: no op runs, the system is given instead
  Inputs in;
  Options options;
  at::Tensor eta;   // (B,T,H), undefined: 1
  at::Tensor skip;  // (B,T,H), undefined: 0
  at::Tensor o;     // (B,T,H,V): what forward got
  std::optional<System> system;

  std::string_view name() const { return op != nullptr ? op->name : "none"; }
  bool keeps_tokens() const { return op != nullptr && op->keeps_tokens; }
};

System system_of(const Core&);      // causal cores only
at::Tensor rebuild(const System&);  // y (B,T,H,V), token by token
at::Tensor map_of(const Core&);     // (B,H,T,T); a scan has one head per channel

}  // namespace horner
