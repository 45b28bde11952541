// `attention` by ATen's flash attention. It takes windows, grouped heads, packed batches and more
// keys than queries, and returns the log-normaliser. Sinks are added to its result (sinks.cu).
//
// Its backward takes no gradient of the log-normaliser; attention_shift works around that. With a
// window and sinks there are two backwards. Both get the o and the log-normaliser of the whole, so
// their weights are those of the whole.
#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "ops/attention/attention.cuh"
#include "ops/attention/attention_cuda.h"
#include "ops/attention/cache.h"
#include "ops/attention/fused.h"
#include "ops/attention/packed_state.h"
#include "ops/attention/plain.h"
#include "ops/packed.h"

namespace horner {
namespace {

bool wants_gradient(const Inputs& in, const State& state) {
  bool any = in.q.requires_grad() || in.k.requires_grad() || in.v.requires_grad();
  for (const at::Tensor& part : state.parts) any = any || part.requires_grad();
  return any && c10::GradMode::is_enabled();
}

std::string refuses_types(const Inputs& in, const State& state) {
  const at::ScalarType type = in.v.scalar_type();
  const int64_t K = in.q.size(3), V = in.v.size(3);
  if (K != V || K % 8 != 0 || K > 256)
    return fmt::format("K = V is a multiple of 8 up to 256, got {} and {}", K, V);
  for (const at::Tensor& part : state.parts)
    if (part.is_floating_point() && part.scalar_type() != type)
      return c10::str("the cache has the dtype of v, ", type, ", got ", part.scalar_type());
  if (at::cuda::getDeviceProperties(in.v.device().index())->major < 8) return "it needs sm_80";
  return "";
}

std::string refuses(const Inputs& in, const State& state, const Options& o) {
  const std::string why = refuses_types(in, state);
  if (!why.empty()) return why;
  if (o.clamp) return "it knows no clamp";
  if (in.q.numel() == 0 || in.v.numel() == 0) return "there is nothing to compute";
  if (!o.causal && (o.sinks > 0 || in.lengths.defined()))
    return "in both directions it takes neither sinks nor padding";
  const bool packed = in.cu_seqlens.defined();
  if (!packed && !state.empty() && least_appended(state.parts[0]) < state.parts[0].size(2))
    return "slots of the cache may be empty";
  if (o.log_norm && in.v.scalar_type() == at::kHalf)
    return "the gradient of the log-normaliser needs the range of bf16";
  if (!wants_gradient(in, state)) return "";
  if (packed && (!state.empty() || o.final_state))
    return "a packed batch has a gradient without states";
  return "";
}

// If everything is visible and only o is wanted, cuDNN can run it and is faster.
bool suits(const Inputs&, const State& state, const Options& o) {
  return !attention_is_plain(state, o);
}

at::Tensor readable(const at::Tensor& x) {  // rows of 16 bytes
  bool fine = x.stride(-1) == 1 && reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0;
  for (int64_t i = 0; i + 1 < x.dim(); ++i) fine = fine && (x.size(i) == 1 || x.stride(i) % 8 == 0);
  return fine ? x.detach() : x.detach().clone(at::MemoryFormat::Contiguous);
}
cuda::Strided tokens_of(const at::Tensor& x) {
  return {x.data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
}
cuda::Strided slots_of(const at::Tensor& x) {  // (B,G,N,K)
  return {x.data_ptr(), x.stride(0), x.stride(2), x.stride(1)};
}

// One call, prepared for flash attention.
struct Problem {
  at::Tensor q, k, v;                          // (B,T,H,K), (B,S+T,G,K); packed: (tokens,heads,K)
  std::optional<at::Tensor> starts, starts_k;  // packed: (n+1), int32
  int64_t longest_q, longest_k, S = 0;
  std::optional<int64_t> left, right;
  double scale;
  Sinks sinks;  // undefined without a state: they are the first tokens
  at::Tensor seen;

  Problem(const Inputs& in, const State& state, const Options& o, const State& next)
      : scale(attention_scale(in, o)) {
    q = readable(in.q);
    k = readable(in.k);
    v = readable(in.v);
    longest_q = longest_k = in.q.size(1);
    if (in.cu_seqlens.defined()) {
      starts = starts_k = in.cu_seqlens.to(in.v.device(), at::kInt).contiguous();
      longest_q = longest_k = longest_sequence(sequence_starts(find_op("attention"), in)).length;
      for (at::Tensor* x : {&q, &k, &v}) *x = x->squeeze(0);
    }
    if (o.window > 0) left = o.window - 1, right = o.causal ? 0 : o.window - 1;
    if (!state.empty()) add_past(in, state, o, next);
  }

  void add_past(const Inputs& in, const State& state, const Options& o, const State& next) {
    const at::NoGradGuard none;
    S = state.parts[0].size(2);
    longest_k += S;
    seen = state.parts[2].contiguous();
    if (o.sinks > 0) {
      const Sinks all =
          starts ? attention_packed_sinks(in, state, o) : attention_sinks(in, state, o);
      sinks = {readable(all.k), readable(all.v)};
    }
    if (starts) {
      const PackedKeys all = attention_packed_keys(in, state);
      k = all.k;
      v = all.v;
      starts_k = all.starts;
      return;
    }
    const bool grown =
        !next.empty() && o.window == 0;  // then the state holds all keys: nothing is copied
    const auto all = [&](size_t part, const at::Tensor& own) {
      if (grown) return readable(next.parts[part].transpose(1, 2));
      return at::cat({state.parts[part].detach().transpose(1, 2), own}, 1);
    };
    k = all(0, k);
    v = all(1, v);
  }

  // (tokens,..) of a packed batch as (1,tokens,..).
  at::Tensor batch(const at::Tensor& x) const { return starts ? x.unsqueeze(0) : x; }

  // Parameters for the kernels of sinks.cu.
  cuda::AttentionSinks sink_problem(const Options& o, const at::Tensor& y, const at::Tensor& norm)
      const {
    cuda::AttentionSinks p{};
    const at::Tensor queries = batch(q);
    p.B = queries.size(0);
    p.T = queries.size(1);
    p.sequences = starts ? starts->numel() - 1 : p.B;
    if (starts) p.starts = starts->data_ptr<int>();
    p.H = int(queries.size(2));
    p.G = int(k.size(-2));
    p.K = int(queries.size(3));
    p.N = int(o.sinks);
    p.window = o.window;
    p.scale = float(scale);
    p.type = q.scalar_type() == at::kHalf ? cuda::Element::f16 : cuda::Element::bf16;
    if (seen.defined()) p.seen = seen.data_ptr<int64_t>();
    p.q = tokens_of(queries);
    p.o = tokens_of(y);
    p.in_tokens = !sinks.k.defined();
    p.keys = p.in_tokens ? tokens_of(batch(k)) : slots_of(sinks.k);
    p.values = p.in_tokens ? tokens_of(batch(v)) : slots_of(sinks.v);
    p.norm = norm.data_ptr<float>();
    return p;
  }
};

template <class F>
void for_sinks(cuda::AttentionSinks p, F&& run) {
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  for (p.first = 0; p.first < p.N; p.first += cuda::kSinksAtOnce) {
    p.count = std::min(cuda::kSinksAtOnce, p.N - p.first);
    C10_CUDA_CHECK(run(p, stream));
  }
}

// torch's norm, (H,tokens) or (B,H,T), as (B,T,H).
at::Tensor outer_norm(const at::Tensor& norm, bool packed) {
  return packed ? norm.t().unsqueeze(0) : norm.transpose(1, 2);
}

Result forward(const Inputs& in, const State& state, const Options& o, Saved* saved) {
  const c10::cuda::CUDAGuard device(in.v.device());
  const bool packed = in.cu_seqlens.defined();
  Result y;
  if (o.final_state && !packed) {
    const at::NoGradGuard none;
    y.state = attention_next_state(in, state, o);
  }
  const Problem x(in, state, o, y.state);
  if (o.final_state && packed) {
    const at::NoGradGuard none;
    y.state = attention_packed_state(in, state, o, x.longest_q);
  }
  at::Tensor norm;
  std::tie(y.o, norm, std::ignore, std::ignore, std::ignore) = at::_flash_attention_forward(
      x.q,
      x.k,
      x.v,
      x.starts,
      x.starts_k,
      x.longest_q,
      x.longest_k,
      0.0,
      o.causal,
      false,
      x.scale,
      x.left,
      x.right
  );
  y.o = x.batch(y.o);
  if (o.sinks > 0) for_sinks(x.sink_problem(o, y.o, norm), cuda::attention_sinks_forward);
  if (o.log_norm) y.norm = outer_norm(norm, packed);
  if (saved != nullptr) {
    (*saved)["o"] = y.o;
    (*saved)["norm"] = norm;
  }
  return y;
}

// Gradients of tensors through plain tensor operations that compute `outputs` from them.
template <class F>
std::vector<at::Tensor> through(
    const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& grads, F&& outputs
) {
  const auto flows_in = [](const at::Tensor& x) { return x.defined(); };
  if (std::none_of(grads.begin(), grads.end(), flows_in))
    return std::vector<at::Tensor>(tensors.size());
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  const c10::impl::ForceDispatchKeyGuard with_autograd(
      keys.included_, keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView
  );
  const at::AutoGradMode graph(true);
  std::vector<at::Tensor> leaves, made, flows, wanted;
  for (const at::Tensor& x : tensors)
    leaves.push_back(x.is_floating_point() ? x.detach().requires_grad_(true) : x);
  const std::vector<at::Tensor> all = outputs(leaves);
  for (size_t i = 0; i < all.size(); ++i) {
    if (i >= grads.size() || !grads[i].defined() || !all[i].requires_grad()) continue;
    made.push_back(all[i]);
    flows.push_back(grads[i].to(all[i].scalar_type()));
  }
  for (const at::Tensor& x : leaves)
    if (x.is_floating_point()) wanted.push_back(x);
  std::vector<at::Tensor> found(leaves.size());
  if (made.empty()) return found;
  const auto some = torch::autograd::grad(made, wanted, flows, {}, false, true);
  size_t next = 0;
  for (size_t i = 0; i < leaves.size(); ++i)
    if (leaves[i].is_floating_point()) found[i] = some[next++];
  return found;
}

// The tensors that a state is made of, and k and v replaced by the first two of a list.
std::vector<at::Tensor> with_state(const Inputs& in, const State& state) {
  std::vector<at::Tensor> list = {in.k, in.v};
  list.insert(list.end(), state.parts.begin(), state.parts.end());
  return list;
}
Inputs with(Inputs in, const std::vector<at::Tensor>& list) {
  in.k = list[0], in.v = list[1];
  return in;
}

void add(std::vector<at::Tensor>& sums, const std::vector<at::Tensor>& more, size_t from) {
  for (size_t i = 0; i < more.size(); ++i) {
    at::Tensor& sum = sums[from + i];
    if (more[i].defined()) sum = sum.defined() ? sum + more[i].to(sum.scalar_type()) : more[i];
  }
}

struct Shifted {
  at::Tensor o, grad;
};
Shifted shifted(const at::Tensor& o, const at::Tensor& grad, const at::Tensor& dnorm) {
  Shifted y{at::empty_like(grad), at::empty_like(grad)};
  cuda::AttentionShift p{};
  p.B = grad.size(0);
  p.T = grad.size(1);
  p.H = int(grad.size(2));
  p.V = int(grad.size(3));
  p.o = tokens_of(o);
  p.grad = tokens_of(grad);
  p.dnorm = dnorm.data_ptr<float>();
  p.moved_o = y.o.data_ptr();
  p.moved_grad = y.grad.data_ptr();
  C10_CUDA_CHECK(cuda::attention_shift(p, at::cuda::getCurrentCUDAStream()));
  return y;
}

struct Gradients {
  at::Tensor dq, dk, dv;
};
Gradients flash_backward(
    const Problem& x, const Options& o, const Shifted& read, const at::Tensor& norm
) {
  const at::Tensor none, starts = x.starts.value_or(none), starts_k = x.starts_k.value_or(none);
  const auto line = [&](const at::Tensor& z) { return x.starts ? z.squeeze(0) : z; };
  const at::Tensor random =
      at::empty({2}, norm.options().dtype(at::kLong));  // unused: dropout is 0
  const auto [dq, dk, dv] = at::_flash_attention_backward(
      line(read.grad),
      x.q,
      x.k,
      x.v,
      line(read.o),
      norm,
      starts,
      starts_k,
      x.longest_q,
      x.longest_k,
      0.0,
      o.causal,
      random,
      random,
      x.scale,
      x.left,
      x.right
  );
  return {dq, dk, dv};
}

// Gradients of the sinks' keys and values (sequences,G,N,K) in fp32; dq is added to. p has o, norm and
// the gradients of both.
Sinks sinks_backward(const Problem& x, cuda::AttentionSinks p, at::Tensor& dq) {
  const at::Tensor partial =
      at::empty({2 * p.H * p.blocks() * p.N * p.K}, x.q.options().dtype(at::kFloat));
  dq = readable(dq);
  p.dq = tokens_of(x.batch(dq));
  p.partial = partial.data_ptr<float>();
  for_sinks(p, cuda::attention_sinks_backward);
  if (!x.starts) {
    const at::Tensor sum = partial.view({2, p.B, p.G, p.H / p.G * p.row_blocks(), p.N, p.K}).sum(3);
    return {sum[0], sum[1]};
  }
  // The blocks of a sequence are neighbours.
  const at::Tensor number = at::arange(p.sequences + 1, x.starts->options().dtype(at::kLong));
  at::Tensor first = x.starts->div(cuda::kSinkRows, "floor") + number;
  first.narrow(0, p.sequences, 1).fill_(p.blocks());
  const at::Tensor blocks = partial.view({2, p.G, p.H / p.G, p.blocks(), p.N, p.K}).sum(2);
  const at::Tensor sum = at::segment_reduce(
      blocks.movedim(2, 0).contiguous(), "sum", first.diff(), {}, {}, 0, true, 0
  );
  return {sum.select(1, 0), sum.select(1, 1)};
}

// Adds the gradients of sinks, which are the first tokens of each sequence, to those of all tokens.
void add_to_tokens(at::Tensor& dx, const at::Tensor& d, const Problem& x) {
  if (!x.starts) {
    const int64_t n = std::min(d.size(2), dx.size(1));
    dx.narrow(1, 0, n).add_(d.narrow(2, 0, n).transpose(1, 2));
    return;
  }
  // A sink after the end of its sequence has the gradient 0: it may be added to any token.
  const at::Tensor first = x.starts->to(at::kLong).narrow(0, 0, d.size(0)).unsqueeze(1);
  const at::Tensor token = first + at::arange(d.size(2), first.options());       // (n,N)
  const at::Tensor rows = d.transpose(1, 2).flatten(0, 1).to(dx.scalar_type());  // (n N,G,K)
  dx.index_add_(0, token.clamp_max(dx.size(0) - 1).flatten(), rows);
}

std::vector<at::Tensor> backward(
    const Inputs& in, const State& state, const Options& o, const Saved& saved, const Result& dy
) {
  const c10::cuda::CUDAGuard device(in.v.device());
  const bool packed = in.cu_seqlens.defined();
  const Problem x(in, state, o, {});
  const at::Tensor norm = saved.get("norm").detach(), out = readable(saved.get("o"));
  const at::Tensor grad =
      (dy.o.defined() ? dy.o.detach() : at::zeros_like(out)).contiguous();  // (B,T,H,V)
  at::Tensor dnorm;
  Shifted read{out, grad};
  if (dy.norm.defined()) {
    dnorm = dy.norm.detach().to(at::kFloat).contiguous();
    read = shifted(out, grad, dnorm);
  }
  auto [dq, dk, dv] = flash_backward(x, o, read, norm);
  std::vector<at::Tensor> all(3 + state.parts.size());
  if (o.sinks > 0) {
    cuda::AttentionSinks p = x.sink_problem(o, out, norm);
    p.grad = tokens_of(grad);
    if (dnorm.defined()) p.dnorm = dnorm.data_ptr<float>();
    const Sinks d = sinks_backward(x, p, dq);
    if (state.empty()) {
      add_to_tokens(dk, d.k, x);
      add_to_tokens(dv, d.v, x);
    } else {
      const auto made = [&](const std::vector<at::Tensor>& z) {
        const Sinks sinks = attention_sinks(with(in, z), {{z.begin() + 2, z.end()}}, o);
        return std::vector<at::Tensor>{sinks.k, sinks.v};
      };
      add(all, through(with_state(in, state), {d.k, d.v}, made), 1);
    }
  }
  const auto own = [&](const at::Tensor& z) {  // (B,S+T,G,K): the last T
    return packed ? z.unsqueeze(0) : z.narrow(1, x.S, z.size(1) - x.S);
  };
  add(all, {packed ? dq.unsqueeze(0) : dq, own(dk), own(dv)}, 0);
  if (!state.empty()) {
    const auto past = [&](const at::Tensor& z) { return z.narrow(1, 0, x.S).transpose(1, 2); };
    add(all, {past(dk), past(dv)}, 3);
  }
  const auto grown = [&](const std::vector<at::Tensor>& z) {
    return attention_next_state(with(in, z), {{z.begin() + 2, z.end()}}, o).parts;
  };
  add(all, through(with_state(in, state), dy.state.parts, grown), 1);
  return all;
}

bool packs(const Inputs&) { return true; }

}  // namespace

Form attention_flash_kernel() {
  return {
      .name = forms::kParallelKernel,
      .forward = forward,
      .backward = backward,
      .types = {at::kBFloat16, at::kHalf},
      .refuses = refuses,
      .suits = suits,
      .packs = packs};
}

}  // namespace horner
