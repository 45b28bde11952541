#include "model/state.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <functional>

#include "core/check.h"

namespace horner {
namespace {

ModelState each_part(
    const ModelState& state, const std::function<at::Tensor(const at::Tensor&)>& f
) {
  ModelState other;
  for (const State& layer : state.layers) {
    State own;
    for (const at::Tensor& part : layer.parts) own.parts.push_back(f(part));
    other.layers.push_back(std::move(own));
  }
  if (state.seen.defined()) other.seen = f(state.seen);
  return other;
}

// The newest token is the last, so missing slots are added before the first.
at::Tensor as_long_as(const at::Tensor& cache, int64_t tokens) {
  return cache.dim() == 4 ? at::constant_pad_nd(cache, {0, 0, tokens - cache.size(2), 0}) : cache;
}

}  // namespace

int64_t ModelState::bytes() const {
  int64_t total = seen.defined() ? int64_t(seen.nbytes()) : 0;
  for (const State& layer : layers) total += layer.bytes();
  return total;
}

ModelState copy(const ModelState& state) {
  return each_part(state, [](const at::Tensor& part) { return part.clone(); });
}

ModelState gather(const ModelState& state, const at::Tensor& rows) {
  return each_part(state, [&](const at::Tensor& part) { return part.index_select(0, rows); });
}

void scatter_in_place(ModelState& into, const at::Tensor& at_rows, const ModelState& from) {
  const at::Tensor rows = at_rows.to(at::kLong);
  HORNER_CHECK(
      into.layers.size() == from.layers.size(),
      "states of {} and {} layers do not fit",
      into.layers.size(),
      from.layers.size()
  );
  for (size_t l = 0; l < into.layers.size(); ++l) {
    for (size_t i = 0; i < into.layers[l].parts.size(); ++i) {
      at::Tensor& part = into.layers[l].parts[i];
      const at::Tensor& other = from.layers[l].parts.at(i);
      const int64_t tokens = part.dim() == 4 ? std::max(part.size(2), other.size(2)) : 0;
      part = as_long_as(part, tokens).index_copy(0, rows, as_long_as(other, tokens));
    }
  }
  if (into.seen.defined()) into.seen = into.seen.index_copy(0, rows, from.seen);
}

}  // namespace horner
