// `attention`, one token at a time (step.cu).
#include "ops/step_cuda.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>

#include "ops/attention/attention.cuh"
#include "ops/attention/attention_cuda.h"
#include "ops/attention/cache.h"
#include "ops/attention/plain.h"

namespace horner {
namespace {

constexpr int64_t kShare = 512, kLeastShare = 64;  // keys of a block
constexpr int64_t kCounters = 1 << 18;             // of a device

std::string refuses(const Inputs& in, const State& state, const Options& o) {
  const int64_t K = in.q.size(3), V = in.v.size(3);
  const at::ScalarType type = in.v.scalar_type();
  const std::string why = refuses_any_step(in);
  if (!why.empty()) return why;
  for (const at::Tensor& part : state.parts) {
    if (part.is_floating_point() && part.scalar_type() != type)
      return c10::str("the cache has the dtype of v, ", type, ", got ", part.scalar_type());
  }
  if (!o.causal) return "it reads the past";
  if (in.lengths.defined()) return "it takes no padding";
  const int64_t vector = 16 / int64_t(in.v.element_size());
  if (K % vector != 0 || V % vector != 0 || std::max(K, V) > 32 * vector)
    return fmt::format(
        "K and V are multiples of {} up to {}, got {} and {}", vector, 32 * vector, K, V
    );
  return "";
}

bool aligned(const at::Tensor& x) {  // rows of 16 bytes
  bool fine = x.stride(-1) == 1 && reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0;
  for (int64_t i = 0; i + 1 < x.dim(); ++i)
    fine = fine && (x.size(i) == 1 || x.stride(i) * int64_t(x.element_size()) % 16 == 0);
  return fine;
}
at::Tensor readable(const at::Tensor& x) {
  const at::Tensor y = x.detach();
  return aligned(y) ? y : y.clone(at::MemoryFormat::Contiguous);
}
at::Tensor readable_cache(const at::Tensor& x) {  // contiguous slots
  const bool dense = x.size(2) <= 1 || x.stride(2) == x.size(3);
  return dense ? readable(x) : x.detach().clone(at::MemoryFormat::Contiguous);
}

cuda::Strided token(const at::Tensor& x) {
  return {x.data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
}
cuda::Strided cache(const at::Tensor& x) { return {x.data_ptr(), x.stride(0), 0, x.stride(1)}; }

// The state after the token. The kernel writes its slot and the number of tokens.
State next_state(const Inputs& in, const State& state, const Options& o) {
  const int64_t B = in.k.size(0), G = in.k.size(2);
  const auto grown = [&](size_t part, const at::Tensor& x) {
    if (has_fixed_caches(state)) return state.parts[part];
    const at::Tensor none = at::empty({B, G, 0, x.size(3)}, x.options().requires_grad(false));
    return extend(state.empty() ? none : state.parts[part], 1, o.window);
  };
  const auto like = in.k.options().dtype(at::kLong).requires_grad(false);
  State next{{grown(0, in.k), grown(1, in.v), at::empty({B, G}, like)}};
  if (o.sinks > 0) {
    const Sinks sinks = attention_sinks(in, state, o);
    next.parts.push_back(sinks.k);
    next.parts.push_back(sinks.v);
  }
  return next;
}

cuda::Strided newest(const at::Tensor& x) { return cache(x.narrow(2, x.size(2) - 1, 1)); }

int splits_of(int64_t rows, int64_t S, int r) {
  const int64_t wanted = cuda::attention_step_blocks(r) *
                         int64_t(at::cuda::getCurrentDeviceProperties()->multiProcessorCount);
  const int64_t most = std::clamp<int64_t>(S / kLeastShare, 1, cuda::kMostStepSplits);
  return int(std::clamp<int64_t>(std::max(wanted / rows, S / kShare), 1, most));
}

int most_splits(int64_t keys) {  // of a row of fixed caches
  const int64_t most = (keys + cuda::kFixedShare - 1) / cuda::kFixedShare;
  return int(std::clamp<int64_t>(most, 1, cuda::kMostStepSplits));
}

// Counters that are zero, and that the kernel leaves zero. Calls on one stream share theirs, since
// they run one after the other. A captured call has its own: its graph may run on any stream.
class Counters {
 public:
  static Counters& of(c10::DeviceIndex device) {
    static std::mutex one_at_a_time;
    static auto* all = new std::map<c10::DeviceIndex, Counters>;  // outlives the CUDA context
    const std::lock_guard lock(one_at_a_time);
    return (*all)[device];
  }
  // Undefined: none are left.
  at::Tensor get(int64_t count, const at::TensorOptions& like, cudaStream_t stream) {
    const std::lock_guard lock(one_at_a_time_);
    const bool captured =
        c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
    if (!all_.defined()) {
      if (captured) return {};
      all_ = at::zeros({kCounters}, like.dtype(at::kInt));
      C10_CUDA_CHECK(cudaStreamSynchronize(stream));  // other streams find zeros
    }
    at::Tensor fresh;
    at::Tensor& own = captured ? fresh : of_stream_[stream];
    if (!own.defined() || own.numel() < count) {
      const int64_t size = (count + 31) / 32 * 32;
      if (used_ + size > kCounters) return {};
      own = all_.narrow(0, used_, size);
      used_ += size;
    }
    return own;
  }

 private:
  std::mutex one_at_a_time_;
  at::Tensor all_;
  int64_t used_ = 0;
  std::map<cudaStream_t, at::Tensor> of_stream_;
};

at::Tensor zero_counters(int64_t count, const at::TensorOptions& like, cudaStream_t stream) {
  at::Tensor own = Counters::of(like.device().index()).get(count, like, stream);
  if (own.defined()) return own;
  own = at::empty({count}, like.dtype(at::kInt));
  C10_CUDA_CHECK(cudaMemsetAsync(own.data_ptr(), 0, own.nbytes(), stream));
  return own;
}

// The token, without a cache and results.
cuda::AttentionStep token_problem(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale, const Options& o
) {
  cuda::AttentionStep p{};
  p.B = q.size(0);
  p.G = int(k.size(2));
  p.r = int(q.size(2) / k.size(2));
  p.K = int(q.size(3));
  p.V = int(v.size(3));
  p.window = o.window;
  p.scale = float(scale);
  p.clamp = o.clamp ? float(*o.clamp) : std::numeric_limits<float>::infinity();
  p.type = v.scalar_type() == at::kFloat  ? cuda::Element::f32
           : v.scalar_type() == at::kHalf ? cuda::Element::f16
                                          : cuda::Element::bf16;
  p.q = token(q);
  p.k = token(k);
  p.v = token(v);
  return p;
}

Result step(const Inputs& in, const State& state, const Options& o, Saved*) {
  const at::NoGradGuard none;
  const c10::cuda::CUDAGuard device(in.v.device());
  const at::Tensor q = readable(in.q), k = readable(in.k), v = readable(in.v);
  const int64_t B = q.size(0), H = q.size(2), G = k.size(2), V = v.size(3);
  cuda::AttentionStep p = token_problem(q, k, v, attention_scale(in, o), o);
  at::Tensor keys, values, seen;
  Sinks sinks;
  if (!state.empty()) {
    keys = readable_cache(state.parts[0]);
    values = readable_cache(state.parts[1]);
    seen = state.parts[2].contiguous();
    p.S = keys.size(2);
    p.fixed = has_fixed_caches(state);
    p.keys = cache(keys);
    p.values = cache(values);
    p.seen = seen.data_ptr<int64_t>();
    if (o.sinks > 0) {
      sinks = attention_sinks(in, state, o);
      sinks = {readable_cache(sinks.k.detach()), readable_cache(sinks.v.detach())};
      p.N = o.sinks;
      p.sink_keys = cache(sinks.k);
      p.sink_values = cache(sinks.v);
    }
  }
  Result y;
  if (o.final_state) {
    y.state = next_state(in, state, o);
    p.new_key = p.fixed ? p.keys : newest(y.state.parts[0]);
    p.new_value = p.fixed ? p.values : newest(y.state.parts[1]);
    p.new_seen = y.state.parts[2].data_ptr<int64_t>();
  }
  y.o = at::empty({B, 1, H, V}, v.options());
  p.o = y.o.data_ptr();
  if (o.log_norm) {
    y.norm = at::empty({B, 1, H}, v.options().dtype(at::kFloat));
    p.norm = y.norm.data_ptr<float>();
  }
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream(v.device().index());
  const int64_t heads = cuda::attention_step_heads(p.r), rows = B * G * ((p.r + heads - 1) / heads);
  p.splits = p.fixed ? most_splits(p.S + p.N) : splits_of(rows, p.S, p.r);
  at::Tensor partial, arrived;
  if (p.splits > 1) {
    partial = at::empty({rows, p.splits, heads, V + 2}, v.options().dtype(at::kFloat));
    arrived = zero_counters(rows, v.options(), stream);
    p.partial = partial.data_ptr<float>();
    p.arrived = reinterpret_cast<unsigned*>(arrived.data_ptr<int>());
  }
  C10_CUDA_CHECK(cuda::attention_step(p, stream));
  return y;
}

}  // namespace

Form attention_step_kernel() {
  return {
      .name = forms::kStepKernel,
      .forward = step,
      .types = {at::kBFloat16, at::kFloat, at::kHalf},
      .refuses = refuses};
}

}  // namespace horner
