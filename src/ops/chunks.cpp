#include "ops/chunks.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <bit>
#include <limits>

namespace horner {

at::ScalarType state_dtype(const Inputs& in) {
  const at::ScalarType type = in.v.scalar_type();
  const at::ScalarType wide = c10::toRealValueType(type) == at::kDouble ? at::kDouble : at::kFloat;
  const bool complex = in.v.is_complex() || (in.g.defined() && in.g.is_complex());
  return complex ? c10::toComplexType(wide) : wide;
}

Operands operands(const Inputs& in) {
  const at::ScalarType dtype = state_dtype(in);
  const int64_t G = in.v.size(2);
  const auto heads_first = [&](const at::Tensor& x) {  // (B,T,G,X) -> (B,G,1,T,X)
    if (!x.defined()) return x;
    return (x.dim() == 3 ? x.unsqueeze(-1) : x)
        .to(dtype)
        .permute({0, 2, 1, 3})
        .contiguous()
        .unsqueeze(2);
  };
  Operands x;
  if (in.q.defined()) {
    const int64_t r = in.q.size(2) / G;
    x.q = in.q.to(dtype).unflatten(2, {G, r}).permute({0, 2, 3, 1, 4}).contiguous();  // (B,G,r,T,K)
  }
  x.k = heads_first(in.k);
  x.v = heads_first(in.v);
  x.g = heads_first(in.g);
  x.beta = heads_first(in.beta);
  return x;
}

at::Tensor to_output(const at::Tensor& y, const Inputs& in) {
  const at::ScalarType dtype = y.is_complex() ? y.scalar_type() : in.v.scalar_type();
  return y.flatten(1, 2).transpose(1, 2).to(dtype).contiguous();  // (B,T,H,V)
}

at::Tensor to_norm(const at::Tensor& y) {
  return y.squeeze(-1).flatten(1, 2).transpose(1, 2).contiguous();  // (B,T,H)
}

at::Tensor to_chunks(const at::Tensor& x, int64_t C) {
  const int64_t T = x.size(-2);
  const int64_t n = (T + C - 1) / C;
  const at::Tensor padded = n * C == T ? x : at::constant_pad_nd(x, {0, 0, 0, n * C - T});
  return padded.unflatten(-2, {n, C});
}

at::Tensor from_chunks(const at::Tensor& x, int64_t T) {
  return x.flatten(-3, -2).narrow(-2, 0, T);
}

at::Tensor since_start(const at::Tensor& g) { return g.cumsum(-2); }

at::Tensor until_end(const at::Tensor& g) {
  const int64_t C = g.size(-2);
  const at::Tensor after =
      at::constant_pad_nd(g.narrow(-2, 1, C - 1), {0, 0, 0, 1});  // g_{t+1}, 0 at t = C
  return after.flip(-2).cumsum(-2).flip(-2);
}

at::Tensor between(const at::Tensor& g) {
  const int64_t C = g.size(-2);
  const at::Tensor later = at::ones({C, C}, g.options().dtype(at::kBool)).tril(-1);  // r > s
  const at::Tensor counted = g.masked_fill(later.logical_not(), 0.0);  // g_r where r > s, (C,C)
  const at::Tensor future = later.t();                                 // t < s
  return counted.cumsum(-2).masked_fill(future, -std::numeric_limits<double>::infinity());
}

namespace {

thread_local bool rounded_products = false;

}  // namespace

RoundedProducts::RoundedProducts() { rounded_products = true; }
RoundedProducts::~RoundedProducts() { rounded_products = false; }

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  if (!rounded_products) return at::matmul(a, b);
  const auto low = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(x.scalar_type()); };
  return at::matmul(low(a), low(b));
}

namespace {

// Halves the chunk. Inside each half it calls itself; across the halves both factors decay towards the boundary.
at::Tensor halved_products(const at::Tensor& q, const at::Tensor& k, const at::Tensor& g) {
  const int64_t C = q.size(-2);
  if (C == 1) return (q * k).sum(-1, true);
  const auto halves = [&](const at::Tensor& x) { return x.unflatten(-2, {2, C / 2}); };
  const at::Tensor q2 = halves(q), k2 = halves(k), g2 = halves(g);
  const at::Tensor within = halved_products(q2, k2, g2);  // (...,2,C/2,C/2)
  const at::Tensor late =
      q2.select(-3, 1) * since_start(g2.select(-3, 1)).exp();  // q_t e^{G_t - G_m}
  const at::Tensor early =
      k2.select(-3, 0) * until_end(g2.select(-3, 0)).exp();  // k_s e^{G_m - G_s}
  const at::Tensor across = product(late, early.transpose(-1, -2));
  return at::cat(
      {at::cat({within.select(-3, 0), at::zeros_like(across)}, -1),
       at::cat({across, within.select(-3, 1)}, -1)},
      -2
  );
}

}  // namespace

at::Tensor decayed_products(const at::Tensor& q, const at::Tensor& k, const at::Tensor& g) {
  if (!g.defined()) return product(q, k.transpose(-1, -2)).tril();
  if (g.size(-1) == 1) return product(q, k.transpose(-1, -2)) * between(g).exp();
  const int64_t C = q.size(-2);
  const int64_t padding = int64_t(std::bit_ceil(uint64_t(C))) - C;
  if (padding == 0) return halved_products(q, k, g);
  const auto pad = [&](const at::Tensor& x) { return at::constant_pad_nd(x, {0, 0, 0, padding}); };
  return halved_products(pad(q), pad(k), pad(g)).narrow(-2, 0, C).narrow(-1, 0, C);
}

}  // namespace horner
