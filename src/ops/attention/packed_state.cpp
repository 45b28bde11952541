#include "ops/attention/packed_state.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace horner {
namespace {

// Of each sequence, (sequences,1).
struct Sequences {
  at::Tensor start, length, seen;  // its first token, its tokens, the tokens before this call
  at::Tensor past;                 // filled slots of its state

  Sequences(const Inputs& in, const State& state) {
    const at::Tensor starts = in.cu_seqlens.to(in.v.device(), at::kLong);
    const int64_t n = starts.numel() - 1;
    start = starts.narrow(0, 0, n).unsqueeze(1);
    length = starts.diff().unsqueeze(1);
    seen = state.empty() ? at::zeros_like(start) : state.parts[2].narrow(1, 0, 1);
    past = state.empty() ? seen : seen.clamp_max(state.parts[0].size(2));
  }
  at::Tensor count(int64_t slots) const { return at::arange(slots, start.options()); }
};

// Rows `index` (sequences,slots) of x (rows,G,X) as (sequences,G,slots,X); zero if not `there`.
at::Tensor gather(const at::Tensor& x, const at::Tensor& index, const at::Tensor& there) {
  const at::Tensor rows = x.index_select(0, index.clamp(0, x.size(0) - 1).flatten());
  const at::Tensor all = rows.unflatten(0, {index.size(0), index.size(1)});
  return all.masked_fill(there.logical_not().unsqueeze(-1).unsqueeze(-1), 0)
      .transpose(1, 2)
      .contiguous();
}

}  // namespace

PackedKeys attention_packed_keys(const Inputs& in, const State& state) {
  const at::Tensor k = in.k.detach().squeeze(0), v = in.v.detach().squeeze(0);
  const Sequences x(in, state);
  const at::Tensor first = at::constant_pad_nd((x.past + x.length).flatten().cumsum(0), {1, 0});
  PackedKeys all{k, v, first.to(at::kInt)};
  if (state.empty()) return all;
  // The keys of sequence n begin at first_n. Slot j of a state lies at first_n + j - (S - past_n); empty slots go to the
  // row after all keys. Token t of the call lies at first_n + past_n + t - start_n.
  const int64_t n = x.start.size(0), S = state.parts[0].size(2), T = k.size(0), end = T + n * S;
  const at::Tensor begin = first.narrow(0, 0, n).unsqueeze(1), slot = x.count(S) - S + x.past;
  const at::Tensor from_state = at::where(slot >= 0, begin + slot, end).flatten();
  const at::Tensor shift = (begin + x.past - x.start).flatten();
  const at::Tensor sequence =
      at::searchsorted((x.start + x.length).flatten(), x.count(T), false, true);
  const at::Tensor own = x.count(T) + shift.index_select(0, sequence);
  const auto merged = [&](const at::Tensor& rows, const at::Tensor& part) {
    at::Tensor line = at::empty({end + 1, rows.size(1), rows.size(2)}, rows.options());
    line.index_copy_(
        0, from_state, part.detach().to(rows.scalar_type()).transpose(1, 2).flatten(0, 1)
    );
    return line.index_copy_(0, own, rows).narrow(0, 0, end);
  };
  all.k = merged(k, state.parts[0]);
  all.v = merged(v, state.parts[1]);
  return all;
}

Sinks attention_packed_sinks(const Inputs& in, const State& state, const Options& o) {
  const Sequences x(in, state);
  const at::Tensor token = x.count(o.sinks) - x.seen;  // the token of this call that is sink s
  const at::Tensor there = (token >= 0).logical_and(token < x.length);
  const auto sinks = [&](const at::Tensor& rows, size_t part) {
    const at::Tensor own = gather(rows.detach().squeeze(0), x.start + token, there);
    if (state.empty()) return own;
    const at::Tensor& old = state.parts[part];
    return at::where(there.unsqueeze(1).unsqueeze(-1), own.to(old.scalar_type()), old.detach());
  };
  return {sinks(in.k, 3), sinks(in.v, 4)};
}

State attention_packed_state(
    const Inputs& in, const State& state, const Options& o, int64_t longest
) {
  const Sequences x(in, state);
  const PackedKeys keys = attention_packed_keys(in, state);
  const int64_t n = x.start.size(0), old = state.empty() ? 0 : state.parts[0].size(2);
  const int64_t S = o.window > 0 ? o.window : old + longest;
  const at::Tensor starts = keys.starts.to(at::kLong);
  const at::Tensor index = starts.narrow(0, 1, n).unsqueeze(1) + x.count(S) - S;  // newest last
  const at::Tensor there = index >= starts.narrow(0, 0, n).unsqueeze(1);
  const at::Tensor seen = (x.seen + x.length).expand({n, in.k.size(2)}).contiguous();
  State next{{gather(keys.k, index, there), gather(keys.v, index, there), seen}};
  if (o.sinks > 0) {
    const Sinks sinks = attention_packed_sinks(in, state, o);
    next.parts.push_back(sinks.k);
    next.parts.push_back(sinks.v);
  }
  return next;
}

}  // namespace horner
