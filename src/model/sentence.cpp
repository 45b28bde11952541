#include "model/sentence.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "core/check.h"

namespace horner {

at::Tensor sentence_vectors(Model& model, const at::Tensor& tokens, const at::Tensor& lengths) {
  HORNER_CHECK(
      model.options().output == "hidden",
      "[sentence] vectors come from an encoder (output = hidden), this model has output = {}",
      model.options().output
  );
  ModelState state;
  Context context;
  context.lengths = lengths;
  context.keep_state = false;
  at::Tensor x = model.hidden(tokens, state, context).to(at::kFloat);  // (B,T,D), 0 in the padding
  if (lengths.defined()) {
    const at::Tensor inside = at::arange(x.size(1), x.device()) <
                              lengths.to(x.device(), at::kLong).unsqueeze(1);  // (B,T)
    x = at::where(inside.unsqueeze(-1), x, 0.0);
  }
  const at::Tensor sum = x.sum(1);  // its direction is that of the mean
  return sum / sum.norm(2, -1, true).clamp_min(1e-12);
}

}  // namespace horner
