#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "nn/selective_scan.cuh"
#include "nn/selective_scan.h"

namespace horner {
namespace {

constexpr int64_t N = cuda::kScanStates;

int64_t blocks(int64_t n, int64_t of) { return (n + of - 1) / of; }

cuda::SelectiveScan problem(const Selective& x, const at::Tensor& marks) {
  cuda::SelectiveScan p{};
  p.B = x.u.size(0);
  p.T = x.u.size(1);
  p.E = x.u.size(2);
  p.bf16 = x.u.scalar_type() == at::kBFloat16;
  p.u = x.u.const_data_ptr();
  p.A = x.A.const_data_ptr<float>();
  p.Bt = x.B.const_data_ptr<float>();
  p.Ct = x.C.const_data_ptr<float>();
  p.marks = marks.data_ptr<float>();
  if (!x.z.defined()) {
    p.dt = x.dt.const_data_ptr<float>();
    return p;
  }
  p.step = x.dt.const_data_ptr();
  p.z = x.z.const_data_ptr();
  p.z_row = x.z.stride(1);
  p.D = x.D.const_data_ptr<float>();
  return p;
}

Scanned forward(const Selective& x, at::Tensor& marks) {
  const c10::cuda::CUDAGuard device(x.u.device());
  const int64_t B = x.u.size(0), T = x.u.size(1), E = x.u.size(2);
  marks = at::empty({B, blocks(T, cuda::kScanTokens), E, N}, x.A.options());
  const bool gate = x.z.defined();
  const Scanned out{
      gate ? at::empty_like(x.u) : at::empty_like(x.dt), at::empty({B, E, N}, x.A.options())};
  cuda::SelectiveScan p = problem(x, marks);
  if (gate)
    p.o = out.y.mutable_data_ptr();
  else
    p.y = out.y.mutable_data_ptr<float>();
  p.last = out.last.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::selective_forward(p, at::cuda::getCurrentCUDAStream(x.u.device().index())));
  return out;
}

ScanGrads backward(const Selective& x, const at::Tensor& marks, const at::Tensor& dy) {
  const c10::cuda::CUDAGuard device(x.u.device());
  const int64_t B = x.u.size(0), T = x.u.size(1), E = x.u.size(2);
  ScanGrads d;
  d.du = at::empty_like(x.u);
  d.ddt = at::empty_like(x.dt);
  const at::Tensor dA = at::empty({B, E, N}, x.A.options());
  const at::Tensor dBC = at::empty({B, T, blocks(E, cuda::kScanChannels), 2 * N}, x.A.options());
  cuda::SelectiveScan p = problem(x, marks);
  p.du = d.du.mutable_data_ptr();
  p.dA = dA.mutable_data_ptr<float>();
  p.dBC = dBC.mutable_data_ptr<float>();
  at::Tensor dD;
  if (x.z.defined()) {
    d.dz = at::empty(x.z.sizes(), x.z.options());
    dD = at::empty({B, cuda::kScanSkips, E}, x.A.options());
    p.d_o = dy.const_data_ptr();
    p.dz = d.dz.mutable_data_ptr();
    p.dstep = d.ddt.mutable_data_ptr();
    p.dD = dD.mutable_data_ptr<float>();
  } else {
    p.dy = dy.const_data_ptr<float>();
    p.ddt = d.ddt.mutable_data_ptr<float>();
  }
  C10_CUDA_CHECK(cuda::selective_backward(p, at::cuda::getCurrentCUDAStream(x.u.device().index())));
  if (dD.defined()) d.dD = dD.flatten(0, 1).sum(0);
  d.dA = dA.sum(0);
  const at::Tensor both = dBC.sum(2);
  d.dB = both.narrow(2, 0, N);
  d.dC = both.narrow(2, N, N);
  return d;
}

}  // namespace

SelectiveKernels cuda_selective_kernels() { return {forward, backward}; }

}  // namespace horner
