// The chunked kernel of `power`, and the list of its kernels.
#include "ops/power/power_cuda.h"

#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "cuda/invariant.h"
#include "ops/power/power.cuh"
#include "ops/power/power.h"

namespace horner {
namespace {

using cuda::PowerSweep;
using cuda::Rows;

constexpr int64_t kSegment =
    8;  // chunks: shorter segments do not pay; longer ones cost dg its precision

std::string refuses_chunked(const Inputs& in, const State&, const Options& options) {
  const int64_t K = in.q.size(3), V = in.v.size(3);
  if (options.order > 2) return fmt::format("its order is at most 2, got {}", options.order);
  if (K > 32 || K % 8 != 0) return fmt::format("K is a multiple of 8 up to 32, got {}", K);
  if (V > 256 || V % 8 != 0) return fmt::format("V is a multiple of 8 up to 256, got {}", V);
  const cudaDeviceProp* gpu = at::cuda::getDeviceProperties(in.v.device().index());
  if (gpu->major != 9)
    return fmt::format("it is made for sm_90, not sm_{}{}", gpu->major, gpu->minor);
  return refuses_any_power(in, options);
}

// The tensors of a call, prepared for the kernels. It keeps them alive while pointers to them are in use.
struct Problem {
  at::Tensor q, k, v, g, S0;
  int64_t B, T, H, G, K, V, F, columns;  // columns of the state
  PowerSweep p;
  cudaStream_t stream;
  std::vector<at::Tensor> held;

  Problem(const Inputs& in, const State& state, const Options& options)
      : q(readable(in.q, true)),
        k(readable(in.k, true)),
        v(readable(in.v, true)),
        B(q.size(0)),
        T(q.size(1)),
        H(q.size(2)),
        G(k.size(2)),
        K(q.size(3)),
        V(v.size(3)),
        F(int64_t(feature_count(K, options.order))),
        columns(V + (options.norm == "sum" ? 1 : 0)),
        stream(at::cuda::getCurrentCUDAStream(in.v.device().index())) {
    const std::vector<double> c = series(options);
    const double scale = scale_of(in, options);
    p.B = B;
    p.T = T;
    p.H = H;
    p.K = int(K);
    p.V = int(V);
    p.order = int(options.order);
    p.c0 = float(c[0]);
    if (c.size() > 1) p.c1 = float(c[1] * scale);
    if (c.size() > 2) p.c2 = float(c[2] * scale * scale);
    p.normalise = options.norm == "sum";
    p.clamps = p.normalise && !options.odd;
    p.eps = float(options.eps);
    p.blocks = int((V + cuda::power_columns(p.K) - 1) / cuda::power_columns(p.K));
    p.state_group = int(H / G);
    p.q = rows(q, H);
    p.k = rows(k, H);
    p.v = rows(v, H);
    if (in.g.defined()) {
      g = in.g.detach().to(at::kFloat).contiguous();
      p.decays = true;
      p.g = {g.data_ptr(), g.stride(0), g.stride(1), g.stride(2), int(H / G)};
    }
    if (!state.empty()) {
      S0 = state.parts[0].detach().to(at::kFloat).contiguous();
      p.first = S0.data_ptr<float>();
      p.S_first = state_scratch(1);
    }
  }

  float* scratch(at::IntArrayRef sizes) {
    held.push_back(at::empty(sizes, q.options().dtype(at::kFloat)));
    return held.back().data_ptr<float>();
  }

  float* state_scratch(int64_t segments) {  // in the layout of the registers
    return scratch({B * H * p.blocks, segments, cuda::power_registers(p.K) * cuda::kPowerThreads});
  }

  // Few heads do not fill the GPU: cut the time into segments. anchored: no segment is too long for dg's precision.
  void cut(bool anchored) {
    const int64_t chunks = (T + cuda::kPowerChunk - 1) / cuda::kPowerChunk, jobs = B * H * p.blocks;
    const int64_t processors = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
    const int64_t whole = std::max<int64_t>(1, chunks / kSegment);
    int64_t segments =
        cuda::batch_invariant() ? 1 : std::clamp<int64_t>(processors / jobs, 1, whole);
    if (anchored) segments = std::max(segments, (chunks + kSegment - 1) / kSegment);
    p.length = int((chunks + segments - 1) / segments);
    p.segments = int((chunks + p.length - 1) / p.length);
    if (p.segments == 1) return;
    p.S = state_scratch(p.segments);
    p.passed = scratch({B * H, p.segments});
  }
};

// What the backward reads besides o, in one tensor: the rounding error of o, bf16 (B,T,H,V), then den (B,H,T).
void use_kept(Problem& x, const at::Tensor& kept) {
  const int64_t half = x.B * x.T * x.H * x.V / 2;
  const at::Tensor rest = kept.narrow(0, 0, half).view(at::kBFloat16);
  x.p.o_rest = rows(rest.view({x.B, x.T, x.H, x.V}), x.H);
  x.p.den = kept.data_ptr<float>() + half;
}

Result forward(const Inputs& in, const State& state, const Options& options, Saved* saved) {
  const c10::cuda::CUDAGuard device(in.v.device());
  Problem x(in, state, options);
  x.cut(false);
  Result y;
  y.o = at::empty({x.B, x.T, x.H, x.V}, x.v.options());
  x.p.o = rows(y.o, x.H);
  if (x.p.normalise && saved != nullptr) {
    const at::Tensor kept =
        at::empty({x.B * x.H * x.T * (1 + x.V / 2)}, x.q.options().dtype(at::kFloat));
    use_kept(x, kept);
    (*saved)["kept"] = kept;
    (*saved)["o"] = y.o;
  }
  if (options.final_state) {
    y.state.parts = {at::empty({x.B, x.G, x.F, x.columns}, x.q.options().dtype(at::kFloat))};
    x.p.last = y.state.parts[0].data_ptr<float>();
    x.p.S_last = x.state_scratch(1);
  }
  C10_CUDA_CHECK(cuda::power_forward(x.p, x.stream));
  return y;
}

// A gradient (B,T,H,width): as the kernel writes it, and as the op returns it. The kernel writes (blocks,..) in fp32 if
// blocks of columns or the query heads of a group must be summed afterwards.
struct Gradient {
  at::Tensor whole;
  int64_t G;

  Gradient(const Problem& x, int64_t width, int64_t blocks, int64_t groups, Rows& to, bool& wide)
      : G(groups) {
    wide = blocks > 1 || groups != x.H;
    whole = at::empty(
        {blocks, x.B, x.T, x.H, width}, x.q.options().dtype(wide ? at::kFloat : at::kBFloat16)
    );
    to = rows(whole[0], x.H);
  }
  at::Tensor result(cudaStream_t stream) const {
    if (whole.scalar_type() == at::kBFloat16) return whole[0];
    const int64_t B = whole.size(1), T = whole.size(2), H = whole.size(3), width = whole.size(4);
    const at::Tensor sum = at::empty({B, T, G, width}, whole.options().dtype(at::kBFloat16));
    cuda::PowerSum p;
    p.from = whole.data_ptr<float>();
    p.to = sum.data_ptr();
    p.rows = B * T * G;
    p.width = int(width);
    p.group = int(H / G);
    p.blocks = int(whole.size(0));
    C10_CUDA_CHECK(cuda::power_sum(p, stream));
    return sum;
  }
};

// dg from what the sweeps of the backward left in x. dS: gradient of the final state `last`; undefined: none.
at::Tensor gate_gradient(Problem& x, const at::Tensor& dS, const at::Tensor& last) {
  const at::Tensor dg = at::empty({x.B, x.T, x.G}, x.q.options().dtype(at::kFloat));
  cuda::PowerGate gate;
  at::Tensor end, through;
  if (dS.defined()) end = (dS * last).sum({2, 3});
  if (dS.defined()) gate.end = end.data_ptr<float>();
  if (dS.defined() && x.S0.defined() && x.T <= cuda::kPowerChunk) {
    through = (dS * x.S0).sum({2, 3}) * x.g.sum(1).exp();
    gate.through = through.data_ptr<float>();
  }
  gate.between = x.scratch({x.B * x.H, x.p.segments});
  gate.dg = dg.data_ptr<float>();
  C10_CUDA_CHECK(cuda::power_gate(x.p, gate, x.stream));
  return dg;
}

// The backward reads the forward's o, its rounding error and den.
void use_saved(Problem& x, const Saved& saved) {
  x.held.push_back(readable(saved.get("o"), true));
  x.p.o = rows(x.held.back(), x.H);
  x.held.push_back(saved.get("kept"));
  use_kept(x, x.held.back());
  x.p.delta = x.scratch({x.B, x.H, x.T});
}

std::vector<at::Tensor> backward(
    const Inputs& in,
    const State& state,
    const Options& options,
    const Saved& saved,
    const Result& dy
) {
  const c10::cuda::CUDAGuard device(in.v.device());
  Problem x(in, state, options);
  PowerSweep& p = x.p;
  const at::TensorOptions wide = x.q.options().dtype(at::kFloat);
  x.cut(p.decays);
  if (p.segments > 1) p.Z = x.state_scratch(p.segments);
  const at::Tensor dO =
      dy.o.defined() ? readable(dy.o, true) : at::zeros({x.B, x.T, x.H, x.V}, x.v.options());
  p.dO = rows(dO, x.H);
  at::Tensor dS, last;
  if (!dy.state.parts.empty() && dy.state.parts[0].defined()) {
    dS = dy.state.parts[0].detach().to(at::kFloat).contiguous();
    p.last_grad = dS.data_ptr<float>();
    p.dS = x.state_scratch(1);
    if (p.decays) {
      last = at::empty({x.B, x.G, x.F, x.columns}, wide);
      p.last = last.data_ptr<float>();
      p.S_last = x.state_scratch(1);
    }
  }
  const Gradient dq(x, x.K, p.blocks, x.H, p.dq, p.wide_dq);
  const Gradient dk(x, x.K, p.blocks, x.G, p.dk, p.wide_dk);
  const Gradient dv(x, x.V, 1, x.G, p.dv, p.wide_dv);
  p.dq_block = p.dk_block = x.B * x.T * x.H * x.K;
  if (p.normalise) use_saved(x, saved);
  if (p.decays) {
    for (float** to : {&p.rho, &p.kappa, &p.early, &p.late})
      *to = x.scratch({p.blocks, x.B, x.H, x.T});
  }
  at::Tensor dS0, ones;
  if (x.S0.defined()) {
    dS0 = at::empty({x.B, x.H, x.F, x.columns}, wide);
    ones = at::empty({p.blocks, x.B, x.H, x.F}, wide);
    p.Z_last = x.state_scratch(1);
    p.dS_left = x.scratch({x.B, x.H});
    p.first_grad = dS0.data_ptr<float>();
    p.first_grad_ones = ones.data_ptr<float>();
  }
  C10_CUDA_CHECK(cuda::power_backward(p, x.stream));

  const at::Tensor dg = p.decays ? gate_gradient(x, dS, last).to(in.g.scalar_type()) : at::Tensor();
  std::vector<at::Tensor> all = {dq.result(x.stream), dk.result(x.stream), dv.result(x.stream), dg};
  if (dS0.defined()) {
    if (p.normalise) dS0.select(3, x.V).copy_(ones.sum(0));
    if (x.G != x.H) dS0 = dS0.unflatten(1, {x.G, x.H / x.G}).sum(2);
    all.push_back(dS0.to(state.parts[0].scalar_type()));
  }
  return all;
}

}  // namespace

double scale_of(const Inputs& in, const Options& options) {
  return options.scale.value_or(1.0 / std::sqrt(double(in.q.size(3))));
}

std::string refuses_any_power(const Inputs& in, const Options& options) {
  if (!options.causal) return "it is causal";
  if (options.log_norm) return "it returns no log of the normaliser";
  if (in.g.defined() && options.decay == "inside") return "its decay is outside the power";
  if (in.v.numel() == 0 || in.q.numel() == 0) return "there is nothing to compute";
  return "";
}

std::vector<Form> power_kernels() {
  return {
      power_step_kernel(),
      {.name = forms::kChunkedKernel,
       .forward = forward,
       .backward = backward,
       .types = {at::kBFloat16},
       .refuses = refuses_chunked},
      power_wide_kernel(),
      power_parallel_kernel(),
      power_direct_kernel(),
  };
}

}  // namespace horner
