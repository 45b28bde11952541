#include "ops/attention/attention.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <limits>

#include "core/check.h"
#include "ops/chunks.h"
#include "ops/sample.h"

namespace horner {
namespace {

// The position that each slot of a state holds; -1 where it holds none.   seen (B,G) -> (B,G,S)
at::Tensor slot_positions(const at::Tensor& seen, int64_t S, const Options& o) {
  const at::Tensor slot = at::arange(S, seen.options());
  const at::Tensor count = seen.unsqueeze(-1);
  if (o.window == 0) return at::where(slot < count, slot, -1);
  const at::Tensor in_ring =
      count - 1 - (count - 1 - slot).remainder(o.window);  // the last p with slot's residue
  const at::Tensor position = at::where(slot < o.sinks, slot, in_ring);
  const at::Tensor holds = (position < count).logical_and(position >= slot.clamp_max(o.sinks));
  return at::where(holds, position, -1);
}

struct Problem {
  at::Tensor q;         // (B,G,r,T,K), scaled
  at::Tensor k, v;      // (B,G,1,S+T,.), the state's first
  at::Tensor from, to;  // positions: of queries (B,G,1,T,1), of keys (B,G,1,1,S+T); -1: no key
  at::Tensor end;       // of the rows (B,1,1,1,1), where they are padded
  int64_t S;
};

double scale_of(const Inputs& in, const Options& o) {
  return o.scale.value_or(1.0 / std::sqrt(double(in.q.size(3))));
}

Problem problem(const Inputs& in, const State& state, const Options& o) {
  const Operands x = operands(in);
  const int64_t T = in.q.size(1);
  Problem p{x.q * scale_of(in, o), x.k, x.v, {}, {}, {}, 0};
  const at::Tensor now = at::arange(T, in.q.options().dtype(at::kLong));  // (T)
  at::Tensor seen = at::zeros({in.k.size(0), in.k.size(2)}, now.options());
  p.to = now.expand({in.k.size(0), in.k.size(2), T});
  if (!state.empty()) {
    p.S = state.parts[0].size(2);
    seen = state.parts[2];
    p.k = at::cat({state.parts[0].to(x.k.scalar_type()).unsqueeze(2), x.k}, -2);
    p.v = at::cat({state.parts[1].to(x.v.scalar_type()).unsqueeze(2), x.v}, -2);
    p.to = at::cat({slot_positions(seen, p.S, o), seen.unsqueeze(-1) + now}, -1);
  }
  if (in.lengths.defined()) p.end = in.lengths.view({-1, 1, 1, 1, 1});
  p.from = (seen.unsqueeze(-1) + now).unsqueeze(2).unsqueeze(-1);
  p.to = p.to.unsqueeze(2).unsqueeze(2);
  return p;
}

at::Tensor visible(
    const at::Tensor& from, const at::Tensor& to, const at::Tensor& end, const Options& o
) {
  at::Tensor yes = to >= 0;
  if (end.defined()) yes = yes.logical_and((to < end).logical_or(from >= end));  // padding sees all
  if (o.window > 0) {
    const at::Tensor near = o.causal ? to > from - o.window : (to - from).abs() < o.window;
    yes = yes.logical_and(near.logical_or(to < o.sinks));
  }
  return o.causal ? yes.logical_and(to <= from) : yes;
}

struct Rows {
  at::Tensor o, norm;  // (B,G,r,C,V), (B,G,r,C,1)
};

// Queries t .. t+C against the first `head` keys and keys lo .. hi.
Rows attend(
    const Problem& p, int64_t t, int64_t C, int64_t head, int64_t lo, int64_t hi, const Options& o
) {
  const auto seen = [&](const at::Tensor& x, int64_t dim) {
    const at::Tensor span = x.narrow(dim, lo, hi - lo);
    return head == 0 ? span : at::cat({x.narrow(dim, 0, head), span}, dim);
  };
  const at::Tensor hidden =
      visible(p.from.narrow(-2, t, C), seen(p.to, -1), p.end, o).logical_not();
  at::Tensor x = at::matmul(p.q.narrow(-2, t, C), seen(p.k, -2).transpose(-1, -2));
  if (o.clamp) x = x.clamp_max(*o.clamp);
  x = x.masked_fill(hidden, -std::numeric_limits<double>::infinity());  // x_ts
  const at::Tensor norm = x.logsumexp(-1, true);                        // log sum_s e^{x_ts}
  return {at::matmul((x - norm).exp(), seen(p.v, -2)), norm};  // sum_s e^{x_ts - norm_t} v_s
}

// Where position p stands in the state, and `none` where it is not kept.
at::Tensor slots(
    const at::Tensor& position, int64_t T, const at::Tensor& seen, int64_t none, const Options& o
) {
  if (o.window == 0) return position;
  const at::Tensor ring = o.sinks + (position - o.sinks).remainder(o.window);
  const at::Tensor kept = position >= seen.unsqueeze(-1) + (T - o.window);
  return at::where(position < o.sinks, position, at::where(kept, ring, none));
}

State zero_state(const Inputs& in, const c10::SymInt& tokens, const Options& o) {
  const c10::SymInt B = in.k.sym_size(0), G = in.k.sym_size(2);
  const c10::SymInt S = o.window > 0 ? c10::SymInt(o.sinks + o.window) : tokens;
  return {{
      at::zeros_symint({B, G, S, in.k.sym_size(3)}, in.k.options()),
      at::zeros_symint({B, G, S, in.v.sym_size(3)}, in.v.options()),
      at::zeros_symint({B, G}, in.k.options().dtype(at::kLong)),
  }};
}

State next_state(const Inputs& in, const State& state, const Options& o) {
  const int64_t T = in.k.size(1);
  const State old = state.empty() ? zero_state(in, 0, o) : state;
  const at::Tensor seen = old.parts[2];  // (B,G)
  const int64_t S = o.window > 0 ? o.sinks + o.window : old.parts[0].size(2) + T;
  const at::Tensor position = seen.unsqueeze(-1) + at::arange(T, seen.options());  // (B,G,T)
  const at::Tensor slot = slots(position, T, seen, S, o).unsqueeze(-1);  // S: one slot to drop into
  const auto write = [&](const at::Tensor& cache, const at::Tensor& x) {  // x (B,T,G,X)
    const at::Tensor rows = x.transpose(1, 2).to(cache.scalar_type());    // (B,G,T,X)
    const at::Tensor room = at::constant_pad_nd(cache, {0, 0, 0, S + 1 - cache.size(2)});
    return room.scatter(2, slot.expand_as(rows), rows).narrow(2, 0, S).contiguous();
  };
  return {{write(old.parts[0], in.k), write(old.parts[1], in.v), seen + T}};
}

Result finish(const Rows& rows, const Inputs& in, const State& state, const Options& o) {
  Result result;
  result.o = to_output(rows.o, in);
  if (o.log_norm) result.norm = to_norm(rows.norm);
  if (o.final_state) result.state = next_state(in, state, o);
  return result;
}

Result recurrent(const Inputs& in, const State& state, const Options& o, Saved*) {
  const Problem p = problem(in, state, o);
  const int64_t T = in.q.size(1);
  std::vector<at::Tensor> out, norm;
  for (int64_t t = 0; t < T; ++t) {
    const Rows row = attend(p, t, 1, 0, 0, o.causal ? p.S + t + 1 : p.S + T, o);
    out.push_back(row.o);
    norm.push_back(row.norm);
  }
  return finish({at::cat(out, -2), at::cat(norm, -2)}, in, state, o);
}

// Torch's fused attention returns no log-normaliser and knows no clamp and no state.
bool can_fuse(const State& state, const Options& o) {
  return state.empty() && !o.log_norm && !o.clamp;
}
bool fused(const State& state, const Options& o) { return can_fuse(state, o) && o.window == 0; }
// A window that looks back alone is fused block by block; a CPU is faster without.
bool fused_blocks(const State& state, const Options& o) {
  return can_fuse(state, o) && o.window > 0 && o.causal && o.sinks == 0;
}

// Blocks of C >= window tokens, or all T: queries c of a block see the keys j of it and of the block before, j - C in (c - window, c].
at::Tensor window_by_blocks(const Inputs& in, const Options& o) {
  const int64_t B = in.q.size(0), T = in.q.size(1), r = in.q.size(2) / in.k.size(2);
  const int64_t C = std::min(T, std::max(o.window, o.chunk)), n = (T + C - 1) / C;
  const auto blocks = [&](const at::Tensor& x) {  // (B,T,H,X) -> (B,n,H,C,X), zeros after the end
    return at::constant_pad_nd(x, {0, 0, 0, 0, 0, n * C - T}).unflatten(1, {n, C}).transpose(2, 3);
  };
  const at::Tensor q = blocks(in.q);
  const at::Tensor k = blocks(in.k).repeat_interleave(r, 2),
                   v = blocks(in.v).repeat_interleave(r, 2);
  const at::Tensor c = at::arange(C, q.options().dtype(at::kLong)).unsqueeze(-1);
  const auto attend_blocks = [&](int64_t first, int64_t count, int64_t before) {
    const auto seen = [&](const at::Tensor& x) {
      const at::Tensor own = x.narrow(1, first, count);
      return (before == 0 ? own : at::cat({x.narrow(1, first - 1, count), own}, 3)).flatten(0, 1);
    };
    const at::Tensor j = at::arange(-before, C, c.options());
    const at::Tensor mask = (j <= c).logical_and(j > c - o.window);
    return at::scaled_dot_product_attention(
               q.narrow(1, first, count).flatten(0, 1),
               seen(k),
               seen(v),
               mask,
               0.0,
               false,
               scale_of(in, o)
    )
        .unflatten(0, {B, count});
  };
  at::Tensor y = attend_blocks(0, 1, 0);
  if (n > 1) y = at::cat({y, attend_blocks(1, n - 1, C)}, 1);
  return y.transpose(2, 3).flatten(1, 2).narrow(1, 0, T).contiguous();
}

Result parallel(const Inputs& in, const State& state, const Options& o, Saved*) {
  if (!fused(state, o)) {
    const Problem p = problem(in, state, o);
    return finish(attend(p, 0, in.q.size(1), 0, 0, p.k.size(-2), o), in, state, o);
  }
  Result result;
  at::Tensor mask;                          // (B,1,1,T): keys that are tokens
  if (in.lengths.defined() && !o.causal) {  // an empty row sees a key, so that nothing is 0/0
    const at::Tensor t = at::arange(in.q.size(1), in.lengths.options());
    mask = (t < in.lengths.clamp_min(1).unsqueeze(-1)).unsqueeze(1).unsqueeze(1);
  }
  const auto heads_first = [](const at::Tensor& x) { return x.transpose(1, 2); };
  result.o = at::scaled_dot_product_attention(
                 heads_first(in.q),
                 heads_first(in.k),
                 heads_first(in.v),
                 mask.defined() ? std::optional(mask) : std::nullopt,
                 0.0,
                 o.causal,
                 scale_of(in, o),
                 in.q.size(2) != in.k.size(2)
  )
                 .transpose(1, 2)
                 .contiguous();
  if (o.final_state) result.state = next_state(in, state, o);
  return result;
}

Result chunked(const Inputs& in, const State& state, const Options& o, Saved*) {
  if (in.q.is_cuda() && fused_blocks(state, o) && in.q.size(1) > 0) {
    Result result;
    result.o = window_by_blocks(in, o);
    if (o.final_state) result.state = next_state(in, state, o);
    return result;
  }
  const Problem p = problem(in, state, o);
  const int64_t T = in.q.size(1);
  std::vector<at::Tensor> out, norm;
  for (int64_t t = 0; t < T; t += o.chunk) {
    const int64_t C = std::min(o.chunk, T - t);
    int64_t head = 0, lo = 0, hi = o.causal ? p.S + t + C : p.S + T;
    if (o.window >
        0) {  // the state, the sinks, and what the window of some query of the chunk holds
      lo = p.S + std::max<int64_t>(0, t - o.window + 1);
      hi = std::min(hi, p.S + t + C + o.window - 1);
      head = std::min(p.S + o.sinks, lo);
    }
    const Rows rows = attend(p, t, C, head, lo, hi, o);
    out.push_back(rows.o);
    norm.push_back(rows.norm);
  }
  return finish({at::cat(out, -2), at::cat(norm, -2)}, in, state, o);
}

void check(const Inputs&, const State&, const Options& o) {
  HORNER_CHECK(
      o.window >= 0, "[attention] window must be at least 0 (0: no window), got {}", o.window
  );
  HORNER_CHECK(o.sinks >= 0, "[attention] sinks must be at least 0, got {}", o.sinks);
  HORNER_CHECK(
      o.sinks == 0 || o.window > 0,
      "[attention] sinks = {} needs a window; without one all is visible",
      o.sinks
  );
}

bool suits_pairs(const Inputs&, const State& state, const Options& o) { return fused(state, o); }

// Padding is masked; a cache would keep it.
bool pads(const Inputs&, const State& state, const Options& o) {
  return state.empty() && !o.final_state;
}

Inputs sample(const Dims& d, const Variant&, at::TensorOptions options) {
  return sample_qkv(d, options);
}

// Scores and values of half the pairs, or of the window; the backward computes the scores again and four products more.
Flops flops(const Dims& d, const Options& o, std::string_view) {
  const double T = double(d.T), seen = o.window > 0 ? std::min(T, 2.0 * double(o.window)) : T;
  const double pairs = seen * double(d.K + d.V);
  return {pairs, 2.5 * pairs};
}

// One slot per token; C_ts = e^{x_ts} over the visible s, and eta its sum.
Recurrence recurrence(const Inputs& in, const Options& o) {
  const int64_t T = in.q.size(1);
  at::Tensor x = at::einsum("bthk,bshk->bths", {in.q, in.k}) * scale_of(in, o);
  if (o.clamp) x = x.clamp_max(*o.clamp);
  const at::Tensor t = at::arange(T, in.q.options().dtype(at::kLong));
  const at::Tensor seen = visible(t.view({T, 1, 1}), t.view({1, 1, T}), {}, o);
  const at::Tensor C = at::where(seen, x.exp(), 0.0);
  const at::Tensor I = at::eye(T, in.k.options()).view({1, T, 1, T});
  return {at::ones_like(C.narrow(3, 0, 1)), I, C, in.v, C.sum(-1)};
}

}  // namespace

Op attention_op() {
  Op op{
      .name = "attention",
      .equation = "o_t = softmax(scale q_t K^T) V over all, a window, or both directions",
      .inputs = {kQ, kK, kV},
      .options =
          {"form",
           "chunk",
           "scale",
           "causal",
           "window",
           "sinks",
           "clamp",
           "log_norm",
           "final_state"},
      .keeps_tokens = true,
      .series = true,
      .forms =
          {{.name = forms::kRecurrent, .forward = recurrent, .suits = never},
           step_form(recurrent),
           {.name = forms::kParallel, .forward = parallel, .suits = suits_pairs},
           {.name = forms::kChunked, .forward = chunked}},
      .zero_state = zero_state,
      .sample = sample,
      .check = check,
      .pads = pads,
      .flops = flops,
      .recurrence = recurrence,
  };
  Options plain = op.defaults, norm = plain, window = plain, sinks = plain, clamped = plain,
          both = plain, both_window = plain;
  norm.log_norm = true;
  window.window = 5;
  sinks.window = 4;
  sinks.sinks = 3;
  sinks.log_norm = true;
  clamped.clamp = 3;
  both.causal = false;
  both_window.causal = false;
  both_window.window = 3;
  op.variants = {
      {"causal", plain},
      {"causal, with norm", norm},
      {"window", window},
      {"window and sinks", sinks},
      {"clamped scores", clamped},
      {"both directions", both},
      {"both directions, window", both_window},
  };
  return op;
}

}  // namespace horner
