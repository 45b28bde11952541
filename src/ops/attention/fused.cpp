#include "ops/attention/fused.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <limits>

#include "ops/attention/cache.h"
#include "ops/attention/plain.h"
#include "ops/chunks.h"

namespace horner {
namespace {

at::Tensor heads_first(const at::Tensor& x) { return x.transpose(1, 2); }  // and back

bool wants_gradient(const Inputs& in, const State& state) {
  if (!c10::GradMode::is_enabled()) return false;
  bool any = in.q.requires_grad() || in.k.requires_grad() || in.v.requires_grad();
  for (const at::Tensor& part : state.parts) any = any || part.requires_grad();
  return any;
}

// Whether torch's CPU function can be used, which also returns the log-normaliser but has no gradient.
bool has_norm(const Inputs& in, const State& state) {
  return in.v.is_cpu() && in.q.size(3) == in.v.size(3) && !wants_gradient(in, state);
}

// torch's CPU function does not look at the last stride.
at::Tensor with_dense_rows(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

// q (B,H,T,K), k (B,G,S,K), v (B,G,S,V), mask (B|1,G|1,T,S) or none -> o (B,T,H,V), norm (B,T,H)
Result attend(
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const std::optional<at::Tensor>& mask,
    bool causal,
    double scale,
    bool norm
) {
  Result y;
  if (norm) {
    std::optional<at::Tensor> added;
    if (mask)
      added = at::zeros(mask->sizes(), q.options())
                  .masked_fill_(mask->logical_not(), -std::numeric_limits<double>::infinity());
    std::tie(y.o, y.norm) = at::_scaled_dot_product_flash_attention_for_cpu(
        with_dense_rows(q), with_dense_rows(k), with_dense_rows(v), 0.0, causal, added, scale
    );
    y.norm = heads_first(y.norm);
  } else {
    const bool grouped = q.size(1) != k.size(1);
    y.o = at::scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale, grouped);
  }
  y.o = heads_first(y.o);
  return y;
}

// A mask per row and key/value head (B|1,G|1,1,C,n) as a mask per query head.
at::Tensor for_heads(const at::Tensor& mask, int64_t r) {
  const at::Tensor own = mask.squeeze(2);
  return own.size(1) == 1 ? own : own.repeat_interleave(r, 1);
}

// Attends to all past tokens, then to the tokens of this call, and merges the two: needs no mask.
Result after_state(const Inputs& in, const State& state, double scale) {
  const at::Tensor q = heads_first(in.q);
  const auto cached = [&](size_t part) { return state.parts[part].to(q.scalar_type()); };
  const Result own = attend(q, heads_first(in.k), heads_first(in.v), {}, true, scale, true);
  return merge(attend(q, cached(0), cached(1), {}, false, scale, true), own);
}

// On a CPU narrow inputs are computed in fp32.
Inputs as_computed(const Inputs& given) {
  Inputs in = given;
  const at::ScalarType type = given.v.is_cpu() ? state_dtype(given) : given.v.scalar_type();
  for (at::Tensor* x : {&in.q, &in.k, &in.v}) *x = x->to(type);
  return in;
}

bool no_slot_is_empty(const State& state) {
  const int64_t S = state.parts[0].size(2);
  return least_appended(state.parts[0]) >= S || (state.parts[2] >= S).all().item<bool>();
}

}  // namespace

bool attention_is_plain(const State& state, const Options& o) {
  return state.empty() && !o.log_norm && !o.clamp && o.window == 0;
}

Result attention_sdpa(const Inputs& in, const State& state, const Options& o) {
  std::optional<at::Tensor> mask;           // (B,1,1,T): keys that are tokens
  if (in.lengths.defined() && !o.causal) {  // an empty row sees a key, so that nothing is 0/0
    const at::Tensor t = at::arange(in.q.size(1), in.lengths.options());
    mask = (t < in.lengths.clamp_min(1).unsqueeze(-1)).unsqueeze(1).unsqueeze(1);
  }
  const at::Tensor q = heads_first(in.q), k = heads_first(in.k), v = heads_first(in.v);
  Result y = attend(q, k, v, mask, o.causal, attention_scale(in, o), false);
  y.o = y.o.contiguous();
  if (o.final_state) y.state = attention_next_state(in, state, o);
  return y;
}

std::string attention_blocks_refuse(const Inputs& in, const State& state, const Options& o) {
  if (o.clamp) return "torch's fused attention knows no clamp";
  // cuDNN, which takes bf16 and fp16, gives NaN under a mask where T % 128 = 64 (pytorch/pytorch
  // issue 196678).
  if (in.v.is_cuda() && in.v.element_size() < 4) return "a mask is safe in fp32 and fp64";
  if (o.log_norm && !has_norm(in, state))
    return "torch's fused attention does not differentiate the log-normaliser";
  return "";
}

Result attention_by_blocks(const Inputs& given, const State& state, const Options& o) {
  const Inputs in = as_computed(given);
  const double scale = attention_scale(in, o);
  const int64_t T = in.q.size(1), r = in.q.size(2) / in.k.size(2);
  const bool norm = has_norm(in, state), all = o.causal && o.window == 0 && !in.lengths.defined();
  Result y;
  if (all && norm && state.empty()) {
    y = attend(heads_first(in.q), heads_first(in.k), heads_first(in.v), {}, true, scale, true);
  } else if (all && norm && state.parts[0].size(2) > 0 && no_slot_is_empty(state)) {
    y = after_state(in, state, scale);
  } else {
    const Visible keys = visible_keys(in, state, o);
    std::vector<at::Tensor> out, norms;
    for (int64_t t = 0; t < T; t += o.chunk) {
      const int64_t C = std::min(o.chunk, T - t);
      const Visible::Span span = keys.span(t, C, o);
      const auto seen = [&](const at::Tensor& x) { return keys.cut(x, -2, span).squeeze(2); };
      const at::Tensor mask = for_heads(keys.mask(t, C, span, o), r);
      const at::Tensor q = heads_first(in.q.narrow(1, t, C));
      const Result block = attend(q, seen(keys.k), seen(keys.v), mask, false, scale, norm);
      out.push_back(block.o);
      norms.push_back(block.norm);
    }
    y.o = at::cat(out, 1);
    if (norm) y.norm = at::cat(norms, 1);
  }
  y.o = y.o.to(given.v.scalar_type()).contiguous();
  y.norm = o.log_norm ? y.norm.contiguous() : at::Tensor();
  if (o.final_state) y.state = attention_next_state(given, state, o);
  return y;
}

}  // namespace horner
