#include "engine/slots.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <map>

#include "ops/attention/cache.h"

namespace horner {
namespace {

constexpr int64_t kSlots = 2;  // dimension of a cache

}  // namespace

Slots::Slots(const Hidden& hidden, at::Device device) {
  const c10::NoGradGuard no_graph;
  const at::Tensor tokens = at::zeros({1, 3}, at::device(device).dtype(at::kLong));
  ModelState state;
  hidden(tokens.narrow(1, 0, 2), state);
  const ModelState before = state;
  hidden(tokens.narrow(1, 2, 1), state);
  for (size_t l = 0; l < state.layers.size(); ++l) {
    layers_.emplace_back();
    for (size_t i = 0; i < state.layers[l].parts.size(); ++i) {
      const at::Tensor &two = before.layers[l].parts.at(i), &three = state.layers[l].parts[i];
      const bool grows = two.sizes() != three.sizes();
      const Kind kind = grows ? Kind::growing : has_room(three) ? Kind::ring : Kind::constant;
      layers_.back().push_back({kind, grows ? three.narrow(kSlots, 0, 1) : three, {}});
      (grows ? token_bytes_ : constant_bytes_) += int64_t(layers_.back().back().like.nbytes());
    }
  }
  seen_like_ = state.seen;
}

void Slots::make(Part& part, int64_t rows, int64_t tokens) const {
  std::vector<int64_t> sizes = part.like.sizes().vec();
  sizes[0] = rows;
  if (part.kind == Kind::growing) sizes[kSlots] = tokens;
  const at::Tensor memory = at::zeros(sizes, part.like.options());
  if (rows_ > 0) {
    at::Tensor old = memory.narrow(0, 0, rows_);
    if (part.kind == Kind::growing) old = old.narrow(kSlots, 0, tokens_);
    old.copy_(part.slots);
  }
  part.slots = part.kind == Kind::constant ? memory : fixed_cache(memory);
}

bool Slots::reserve(int64_t rows, int64_t tokens) {
  if (!grows()) tokens = 0;
  if (rows <= rows_ && tokens <= tokens_) return false;
  rows = std::max(rows, rows_), tokens = std::max(tokens, tokens_);
  for (auto& layer : layers_) {
    for (Part& part : layer) make(part, rows, tokens);
  }
  if (seen_like_.defined()) {
    const at::Tensor seen = at::zeros({rows}, seen_like_.options());
    if (rows_ > 0) seen.narrow(0, 0, rows_).copy_(seen_);
    seen_ = seen;
  }
  rows_ = rows, tokens_ = tokens;
  return true;
}

void Slots::put(int64_t row, const ModelState& state, int64_t length) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    for (size_t i = 0; i < layers_[l].size(); ++i) {
      const Part& part = layers_[l][i];
      const at::Tensor from = state.layers[l].parts[i], to = part.slots.narrow(0, row, 1);
      if (part.kind == Kind::growing) {  // the last slots of `from` are the tokens
        to.narrow(kSlots, 0, length).copy_(from.narrow(kSlots, from.size(kSlots) - length, length));
      } else if (part.kind == Kind::ring) {  // slot j: token length - w + j
        to.copy_(from.roll(length % from.size(kSlots), kSlots));
      } else {
        to.copy_(from);
      }
    }
  }
  if (seen_.defined()) seen_.narrow(0, row, 1).copy_(state.seen);
}

ModelState Slots::take(int64_t row, int64_t length) const {
  ModelState state;
  for (const auto& layer : layers_) {
    State& own = state.layers.emplace_back();
    for (const Part& part : layer) {
      at::Tensor x = part.slots.narrow(0, row, 1);
      if (part.kind == Kind::constant) {
        own.parts.push_back(x.clone());
        continue;
      }
      const bool ring = part.kind == Kind::ring;
      const int64_t w = x.size(kSlots), held = ring ? std::min(length, w) : length;
      x = ring ? x.roll(-(length % w), kSlots).narrow(kSlots, w - held, held)
               : x.narrow(kSlots, 0, held);
      own.parts.push_back(append(x.narrow(kSlots, 0, 0), x, ring ? w : 0));  // has room again
    }
  }
  if (seen_.defined()) state.seen = seen_.narrow(0, row, 1).clone();
  return state;
}

void Slots::move(int64_t from, int64_t to) {
  for (const auto& layer : layers_) {
    for (const Part& part : layer) part.slots.narrow(0, to, 1).copy_(part.slots.narrow(0, from, 1));
  }
  if (seen_.defined()) seen_.narrow(0, to, 1).copy_(seen_.narrow(0, from, 1));
}

ModelState Slots::view(int64_t rows, int64_t tokens) const {
  ModelState state;
  for (const auto& layer : layers_) {
    State& own = state.layers.emplace_back();
    for (const Part& part : layer) {
      const at::Tensor x = part.slots.narrow(0, 0, rows);
      own.parts.push_back(part.kind == Kind::growing ? x.narrow(kSlots, 0, tokens) : x);
    }
  }
  if (seen_.defined()) state.seen = seen_.narrow(0, 0, rows);
  return state;
}

void Slots::keep(const ModelState& view, const ModelState& after) const {
  std::map<at::ScalarType, std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>> changed;
  const auto add = [&](const at::Tensor& to, const at::Tensor& from) {
    if (to.data_ptr() == from.data_ptr()) return;  // a fixed cache, or not changed
    auto& [into, values] = changed[to.scalar_type()];
    into.push_back(to), values.push_back(from.to(to.scalar_type()));
  };
  for (size_t l = 0; l < layers_.size(); ++l) {
    for (size_t i = 0; i < layers_[l].size(); ++i)
      add(view.layers[l].parts[i], after.layers[l].parts[i]);
  }
  if (seen_.defined()) add(view.seen, after.seen);
  for (auto& [type, lists] : changed) at::_foreach_copy_(lists.first, lists.second);
}

}  // namespace horner
