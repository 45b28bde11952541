// The state of a whole model: one state per layer, every part with the batch first.
#pragma once

#include "ops/op.h"

namespace horner {

struct ModelState {
  std::vector<State> layers;
  at::Tensor seen;  // (B): tokens so far, if the model has learned positions
  bool empty() const { return layers.empty(); }
  int64_t bytes() const;
};

ModelState copy(const ModelState&);
ModelState gather(
    const ModelState&, const at::Tensor& rows
);  // rows (n) of the batch, in that order
// Puts row i of `from` at rows[i]; a key/value cache grows to the longer of the two.
void scatter_in_place(ModelState& into, const at::Tensor& rows, const ModelState& from);

}  // namespace horner
