#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "nn/fused/fused.cuh"
#include "nn/fused/kernels.h"

namespace horner {
namespace {

cudaStream_t stream_of(const at::Tensor& x) {
  return at::cuda::getCurrentCUDAStream(x.device().index());
}
const void* read(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }
const float* floats(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<float>() : nullptr;
}
bool is_bf16(const at::Tensor& x) { return x.scalar_type() == at::kBFloat16; }

at::Tensor parts(const at::Tensor& like, const at::Tensor& x) {  // (row_blocks, ..)
  std::vector<int64_t> sizes = like.sizes().vec();
  const int64_t n = x.size(-1);
  sizes.insert(sizes.begin(), cuda::row_blocks(x.numel() / n, int(n)));
  return at::empty(sizes, x.options().dtype(at::kFloat));
}

cuda::AddNormCall add_norm_call(const at::Tensor& x, const at::Tensor& weight) {
  cuda::AddNormCall p;
  p.n = int(x.size(-1));
  p.inverse = 1 / float(p.n);
  p.rows = x.numel() / p.n;
  p.weight = floats(weight);
  return p;
}

void add_norm(
    const at::Tensor& x,
    const at::Tensor& y,
    const at::Tensor& weight,
    double eps,
    at::Tensor& sum,
    at::Tensor& norm,
    at::Tensor& r
) {
  const c10::cuda::CUDAGuard device(x.device());
  cuda::AddNormCall p = add_norm_call(x, weight);
  p.bf16 = is_bf16(norm);
  p.eps = float(eps);
  p.x = floats(x);
  p.y = read(y);
  p.sum = sum.mutable_data_ptr<float>();
  p.norm = norm.mutable_data_ptr();
  p.r = r.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::add_norm_forward(p, stream_of(x)));
}

AddNormGrads add_norm_backward(
    const at::Tensor& sum,
    const at::Tensor& r,
    const at::Tensor& weight,
    const at::Tensor& dnorm,
    const at::Tensor& dsum,
    bool wants_dy
) {
  const c10::cuda::CUDAGuard device(sum.device());
  AddNormGrads g;
  g.dx = at::empty_like(sum);
  if (wants_dy) g.dy = is_bf16(dnorm) ? at::empty_like(dnorm) : g.dx;
  g.dweight = parts(weight, sum);
  cuda::AddNormCall p = add_norm_call(sum, weight);
  p.bf16 = is_bf16(dnorm);
  p.sum = const_cast<float*>(floats(sum));
  p.r = const_cast<float*>(floats(r));
  p.dnorm = read(dnorm);
  p.dsum = floats(dsum);
  p.dx = g.dx.mutable_data_ptr<float>();
  if (wants_dy && p.bf16) p.dy = g.dy.mutable_data_ptr();
  p.dweight = g.dweight.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::add_norm_backward(p, stream_of(sum)));
  return g;
}

cuda::GatedNormCall norm_call(const NormInput& in) {
  cuda::GatedNormCall p;
  p.n = int(in.x.size(-1));
  p.inverse = 1 / float(p.n);
  p.rows = in.x.numel() / p.n;
  p.heads = in.weight.defined() && in.weight.dim() == 2 ? int(in.weight.size(0)) : 1;
  p.bf16 = is_bf16(in.x);
  p.layer = in.layer;
  p.act = in.gate.defined() ? int(in.act) : 0;
  p.eps = float(in.eps);
  p.weight = floats(in.weight);
  p.D = floats(in.D);
  p.x = read(in.x);
  p.gate = read(in.gate);
  if (in.gate.defined() && in.gate.dim() >= 2) p.gate_row = in.gate.stride(-2);
  p.u = read(in.u);
  return p;
}

template <auto kernel>
at::Tensor norm_forward(const NormInput& in) {
  const c10::cuda::CUDAGuard device(in.x.device());
  const at::Tensor y = at::empty_like(in.x);
  cuda::GatedNormCall p = norm_call(in);
  p.y = y.mutable_data_ptr();
  C10_CUDA_CHECK(kernel(p, stream_of(in.x)));
  return y;
}

template <auto kernel>
NormGrads norm_backward(const NormInput& in, const at::Tensor& dy) {
  const c10::cuda::CUDAGuard device(in.x.device());
  NormGrads g;
  cuda::GatedNormCall p = norm_call(in);
  p.dy = read(dy);
  g.dx = at::empty_like(in.x);
  p.dx = g.dx.mutable_data_ptr();
  if (in.gate.defined()) {
    g.dgate = at::empty(in.gate.sizes(), in.gate.options());
    p.dgate = g.dgate.mutable_data_ptr();
  }
  if (in.weight.defined()) {
    g.dweight = parts(in.weight, in.x);
    p.dweight = g.dweight.mutable_data_ptr<float>();
  }
  if (in.u.defined()) {
    g.du = at::empty_like(in.u);
    g.dD = parts(in.D, in.x);
    p.du = g.du.mutable_data_ptr();
    p.dD = g.dD.mutable_data_ptr<float>();
  }
  C10_CUDA_CHECK(kernel(p, stream_of(in.x)));
  return g;
}

cuda::SwigluCall swiglu_call(const at::Tensor& a, const at::Tensor& b) {
  cuda::SwigluCall p;
  p.count = a.numel();
  p.bf16 = is_bf16(a);
  p.a = read(a);
  p.b = read(b);
  return p;
}

at::Tensor swiglu_forward(const at::Tensor& a, const at::Tensor& b) {
  const c10::cuda::CUDAGuard device(a.device());
  const at::Tensor y = at::empty(a.sizes(), a.options());
  cuda::SwigluCall p = swiglu_call(a, b);
  if (!a.is_contiguous()) p.width = a.size(-1), p.stride = a.stride(-2);
  p.y = y.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::swiglu_forward(p, stream_of(a)));
  return y;
}

std::pair<at::Tensor, at::Tensor> swiglu_backward(
    const at::Tensor& a, const at::Tensor& b, const at::Tensor& dy
) {
  const c10::cuda::CUDAGuard device(a.device());
  const at::Tensor da = at::empty_like(a), db = at::empty_like(b);
  cuda::SwigluCall p = swiglu_call(a, b);
  p.dy = read(dy);
  p.da = da.mutable_data_ptr();
  p.db = db.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::swiglu_backward(p, stream_of(a)));
  return {da, db};
}

}  // namespace

FusedKernels cuda_fused_kernels() {
  FusedKernels k;
  k.norm_takes = [](int64_t n, int64_t heads) {
    return n <= cuda::kWidestRow && cuda::gated_norm_takes(int(n), int(heads));
  };
  k.add_norm = add_norm;
  k.add_norm_backward = add_norm_backward;
  k.gated_norm = norm_forward<cuda::gated_norm_forward>;
  k.gated_norm_backward = norm_backward<cuda::gated_norm_backward>;
  k.skip_norm = norm_forward<cuda::skip_norm_forward>;
  k.skip_norm_backward = norm_backward<cuda::skip_norm_backward>;
  k.swiglu = swiglu_forward;
  k.swiglu_backward = swiglu_backward;
  return k;
}

}  // namespace horner
