#include "ops/scan/scan_cuda.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "cuda/tensors.h"
#include "ops/scan/scan.cuh"

namespace horner {
namespace {

std::string refuses(const Inputs& in, const State&, const Options&) {
  if (in.g.is_complex()) return "it is real";
  if (in.g.dim() != 4) return "its decay is per element, not per head";
  if (in.v.size(2) * in.v.size(3) % 8 != 0)
    return fmt::format("H V is a multiple of 8, got {}", in.v.size(2) * in.v.size(3));
  return "";
}

// The tensors of a call, prepared for the kernels. It keeps them alive while pointers to them are in use.
struct Problem {
  at::Tensor g, v, first;
  cuda::Scan p;
  cudaStream_t stream;

  Problem(const Inputs& in, const State& state)
      : v(in.v.detach().contiguous()),
        stream(at::cuda::getCurrentCUDAStream(in.v.device().index())) {
    const at::ScalarType type = v.scalar_type();
    g = in.g.detach().to(in.g.scalar_type() == type ? type : at::kFloat).contiguous();
    if (!state.empty()) first = state.parts[0].detach().to(at::kFloat).contiguous();
    p.B = v.size(0);
    p.T = v.size(1);
    p.C = v.size(2) * v.size(3);
    p.type = type_of(type);
    p.gate = type_of(g.scalar_type());
    p.g = g.data_ptr();
    p.v = v.data_ptr();
    if (first.defined()) p.first = first.data_ptr<float>();
  }

  at::Tensor state_like() const {  // (B,H,V)
    return at::empty({v.size(0), v.size(2), v.size(3)}, v.options().dtype(at::kFloat));
  }
};

Result forward(const Inputs& in, const State& state, const Options& options, Saved* saved) {
  const c10::cuda::CUDAGuard device(in.v.device());
  Problem x(in, state);
  Result y;
  y.o = at::empty_like(x.v);
  x.p.h = y.o.data_ptr();
  if (options.final_state) {
    y.state.parts = {x.state_like()};
    x.p.last = y.state.parts[0].data_ptr<float>();
  }
  C10_CUDA_CHECK(cuda::scan_forward(x.p, x.stream));
  if (saved != nullptr) (*saved)["h"] = y.o;
  return y;
}

std::vector<at::Tensor> backward(
    const Inputs& in, const State& state, const Options&, const Saved& saved, const Result& dy
) {
  const c10::cuda::CUDAGuard device(in.v.device());
  Problem x(in, state);
  const at::Tensor h = saved.get("h").detach().contiguous();
  const at::Tensor dh = dy.o.defined() ? dy.o.detach().contiguous() : at::zeros_like(x.v);
  const at::Tensor dv = at::empty_like(x.v), dg = at::empty_like(x.g);
  at::Tensor dlast, dfirst;
  if (!dy.state.parts.empty() && dy.state.parts[0].defined()) {
    dlast = dy.state.parts[0].detach().to(at::kFloat).contiguous();
    x.p.dlast = dlast.data_ptr<float>();
  }
  if (!state.empty()) {
    dfirst = x.state_like();
    x.p.dfirst = dfirst.data_ptr<float>();
  }
  x.p.h = h.data_ptr();
  x.p.dh = dh.data_ptr();
  x.p.dv = dv.data_ptr();
  x.p.dg = dg.data_ptr();
  C10_CUDA_CHECK(cuda::scan_backward(x.p, x.stream));
  std::vector<at::Tensor> all = {dv, dg.to(in.g.scalar_type())};
  if (!state.empty()) all.push_back(dfirst.to(state.parts[0].scalar_type()));
  return all;
}

}  // namespace

std::vector<Form> scan_kernels() {
  return {
      {.name = forms::kChunkedKernel,
       .forward = forward,
       .backward = backward,
       .types = {at::kFloat, at::kBFloat16, at::kHalf},
       .refuses = refuses}};
}

}  // namespace horner
