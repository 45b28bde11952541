#include "engine/drawn_tokens.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <limits>

namespace horner {
namespace {

// u = 1 - 2^-53 must not lie beyond a sum that was rounded down.
constexpr double kBelowOne = 1 - 1e-12;
constexpr double kNever = -std::numeric_limits<double>::infinity();

}  // namespace

at::Tensor drawn_tokens(const at::Tensor& logits, const at::Tensor& draws) {
  const at::Tensor temperature = draws.narrow(1, 0, 1), u = draws.narrow(1, 1, 1);
  const at::Tensor likeliest = temperature == 0;  // (n,1)
  const at::Tensor x = logits.to(at::kDouble), most = x.amax(-1, true);
  const at::Tensor below = at::where(x == most, 0., x - most);  // inf - inf is NaN
  const at::Tensor w = (below / temperature.masked_fill(likeliest, 1)).exp_();
  const at::Tensor sums = w.cumsum(-1);  // (n,V)
  const at::Tensor total = sums.narrow(1, sums.size(1) - 1, 1);
  const at::Tensor inside = (sums > u * kBelowOne * total).logical_and_(w > 0);
  const at::Tensor drawn = inside.to(at::kByte).argmax(-1, true);  // of equals the first
  const at::Tensor token = at::where(likeliest, logits.argmax(-1, true), drawn);
  return at::where(total.isnan().logical_or_(most == kNever), -1, token).squeeze(1);
}

int32_t drawn_token(const at::Tensor& logits, const Draw& draw) {
  const at::Tensor draws = at::tensor({draw.temperature, draw.u}, at::kDouble).unsqueeze(0);
  return drawn_tokens(logits, draws.to(logits.device())).item<int32_t>();
}

}  // namespace horner
