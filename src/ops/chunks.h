// What the plain forms share: the layout in which they compute, chunks of time, and decays inside a chunk.
//
// Inside an op, head comes before time and query heads are grouped by the key/value head they read:
//   q (B,G,r,T,K)   k (B,G,1,T,K)   v (B,G,1,T,V)   g (B,G,1,T,1) or (B,G,1,T,K)   S (B,G,1,K,V)
// in fp32, or in fp64 if the inputs are. A chunked tensor has (n,C) instead of T.
//
// A decay is the sum of log-decays g <= 0 over its span, never a difference of longer sums. So no exponent is positive,
// nothing cancels, and g = -inf (a reset) works like any other value.
#pragma once

#include "ops/op.h"

namespace horner {

struct Operands {
  at::Tensor q, k, v, g, beta;
};
Operands operands(const Inputs&);
at::ScalarType state_dtype(const Inputs&);  // fp32 for everything narrower
at::Tensor
to_output(const at::Tensor& y, const Inputs&);  // (B,G,r,T,V) -> (B,T,H,V) in the dtype of v
at::Tensor to_norm(const at::Tensor& y);        // (B,G,r,T,1) -> (B,T,H)

at::Tensor to_chunks(
    const at::Tensor& x, int64_t C
);  // (...,T,X) -> (...,n,C,X), zeros after the end
at::Tensor from_chunks(const at::Tensor& x, int64_t T);  // and back

at::Tensor since_start(const at::Tensor& g);  // G_t = g_1 + .. + g_t        (...,C,X)
at::Tensor until_end(const at::Tensor& g);    // G_C - G_t = g_{t+1} + .. + g_C
at::Tensor between(const at::Tensor& g
);  // G_t - G_s for s <= t, else -inf   (...,C,1) -> (...,C,C)

// a b. While a RoundedProducts lives, a, b and the incoming gradient are rounded to bf16 first. This is the plain form in
// the precision of tensor cores: a kernel's error is compared with its error.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
struct RoundedProducts {
  RoundedProducts();
  ~RoundedProducts();
  RoundedProducts(const RoundedProducts&) = delete;
  RoundedProducts& operator=(const RoundedProducts&) = delete;
};

// q_t . diag(exp(G_t - G_s)) k_s for s <= t, else 0   (...,C,C); g undefined, (...,C,1) or (...,C,K).
at::Tensor decayed_products(const at::Tensor& q, const at::Tensor& k, const at::Tensor& g);

}  // namespace horner
