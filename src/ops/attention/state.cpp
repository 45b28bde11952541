// The state of `attention`: how it begins and how it grows. See attention.h for its parts.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include "core/memory.h"
#include "ops/attention/cache.h"
#include "ops/attention/plain.h"

namespace horner {
namespace {

at::Tensor heads_first(const at::Tensor& x) { return x.transpose(1, 2); }  // (B,T,G,X) -> (B,G,T,X)

// Whether every row has surely seen all its sinks, decided without waiting for a GPU.
bool complete(const State& state, int64_t sinks) {
  if (least_appended(state.parts[0]) >= sinks) return true;
  const at::Tensor& seen = state.parts[2];
  return seen.is_cpu() && has_memory(seen) && (seen >= sinks).all().item<bool>();
}

// Fills the sinks `old` (B,G,N,X), of which `seen` are filled, with the first of the new tokens x (B,T,G,X).
at::Tensor with_first(const at::Tensor& old, const at::Tensor& seen, const at::Tensor& x) {
  const int64_t N = old.size(2), T = std::min(N, x.size(1));
  const at::Tensor rows = heads_first(x.narrow(1, 0, T)).to(old.scalar_type());  // (B,G,T,X)
  const at::Tensor position = seen.unsqueeze(-1) + at::arange(T, seen.options());
  const at::Tensor slot = position.clamp_max(N).unsqueeze(-1);  // slot N is dropped afterwards
  const at::Tensor room = at::constant_pad_nd(old, {0, 0, 0, 1});
  return room.scatter(2, slot.expand_as(rows), rows).narrow(2, 0, N).contiguous();
}

// A fixed cache, into which the token x (B,1,G,X) of rows that have seen so many was written.
at::Tensor with_token(const at::Tensor& fixed, const at::Tensor& seen, const at::Tensor& x) {
  const at::Tensor rows = heads_first(x).to(fixed.scalar_type());  // (B,G,1,X)
  const at::Tensor slot = seen.remainder(fixed.size(2)).unsqueeze(-1).unsqueeze(-1);
  at::Tensor cache = fixed;
  return cache.scatter_(2, slot.expand_as(rows), rows);
}

}  // namespace

bool has_fixed_caches(const State& state) { return !state.empty() && is_fixed(state.parts[0]); }

State attention_zero_state(const Inputs& in, const c10::SymInt& tokens, const Options& o) {
  const c10::SymInt B = in.k.sym_size(0), G = in.k.sym_size(2);
  const c10::SymInt S = o.window > 0 ? c10::SymInt(o.window) : tokens;
  const auto zeros = [&](const c10::SymInt& slots, const at::Tensor& like) {
    return at::zeros_symint({B, G, slots, like.sym_size(3)}, like.options());
  };
  State state{
      {zeros(S, in.k), zeros(S, in.v), at::zeros_symint({B, G}, in.k.options().dtype(at::kLong))}};
  if (o.sinks > 0) {
    state.parts.push_back(zeros(o.sinks, in.k));
    state.parts.push_back(zeros(o.sinks, in.v));
  }
  return state;
}

Sinks attention_sinks(const Inputs& in, const State& state, const Options& o) {
  if (o.sinks == 0) return {};
  if (!state.empty() && complete(state, o.sinks)) return {state.parts[3], state.parts[4]};
  const auto first = [&](const at::Tensor& x, size_t part) {
    if (!state.empty()) return with_first(state.parts[part], state.parts[2], x);
    const int64_t T = std::min(o.sinks, x.size(1));
    const at::Tensor rows = heads_first(x.narrow(1, 0, T));
    return at::constant_pad_nd(rows, {0, 0, 0, o.sinks - T}).contiguous();
  };
  return {first(in.k, 3), first(in.v, 4)};
}

State attention_next_state(const Inputs& in, const State& state, const Options& o) {
  const int64_t B = in.k.size(0), T = in.k.size(1), G = in.k.size(2);
  const auto grown = [&](const at::Tensor& x, size_t part) {
    if (has_fixed_caches(state)) return with_token(state.parts[part], state.parts[2], x);
    const at::Tensor old =
        state.empty() ? at::empty({B, G, 0, x.size(3)}, x.options()) : state.parts[part];
    return append(old, heads_first(x), o.window);
  };
  const at::Tensor seen =
      state.empty() ? at::full({B, G}, T, in.k.options().dtype(at::kLong)) : state.parts[2] + T;
  State next{{grown(in.k, 0), grown(in.v, 1), seen}};
  if (o.sinks > 0) {
    const Sinks sinks = attention_sinks(in, state, o);
    next.parts.push_back(sinks.k);
    next.parts.push_back(sinks.v);
  }
  return next;
}

}  // namespace horner
