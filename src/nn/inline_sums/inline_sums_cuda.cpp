#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "nn/inline_sums/inline_sums.cuh"
#include "nn/inline_sums/inline_sums.h"

namespace horner {
namespace {

using Narrow = __nv_bfloat16;

const Narrow* in(const at::Tensor& x) { return static_cast<const Narrow*>(x.const_data_ptr()); }
Narrow* out(const at::Tensor& x) { return static_cast<Narrow*>(x.mutable_data_ptr()); }

cuda::InlineShape shape_of(const at::Tensor& x, const at::Tensor& bias) {  // (B,T,H,K)
  const int64_t taps = bias.defined() ? bias.size(1) / x.size(3) : 0;
  return {x.size(0), x.size(1), int(x.size(2)), int(x.size(3)), int(taps)};
}
cuda::InlineShape shape_by_head(const at::Tensor& x) {  // (H,B,T,K)
  return {x.size(1), x.size(2), int(x.size(0)), int(x.size(3)), 0};
}

cudaStream_t stream_of(const at::Tensor& x) {
  return at::cuda::getCurrentCUDAStream(x.device().index());
}

InlineWeighted weights(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const c10::cuda::CUDAGuard device(q.device());
  const InlineWeighted w{
      at::empty_like(q),
      at::empty_like(k),
      at::empty_like(v),
      at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat))};
  cuda::InlineWeights p;
  p.shape = shape_of(q, {});
  p.q = in(q), p.k = in(k), p.v = in(v);
  p.qh = out(w.qh), p.ks = out(w.k), p.vs = out(w.v);
  p.c = w.c.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::inline_weights(p, stream_of(q)));
  return w;
}

std::pair<at::Tensor, at::Tensor> weights_backward(
    const at::Tensor& qh, const at::Tensor& k, const InlineWeighted& d
) {
  const c10::cuda::CUDAGuard device(qh.device());
  const at::Tensor dq = at::empty_like(qh), dk = at::empty_like(k);
  cuda::InlineWeights p;
  p.shape = shape_of(qh, {});
  p.qh = out(qh), p.ks = out(k);
  p.dqh = in(d.qh), p.dks = in(d.k);
  p.dc = d.c.const_data_ptr<float>();
  p.dq = out(dq), p.dk = out(dk);
  C10_CUDA_CHECK(cuda::inline_weights(p, stream_of(qh)));
  return {dq, dk};
}

cuda::InlineOutput problem(
    const at::Tensor& v, const at::Tensor& c, const at::Tensor& rk, const at::Tensor& bias
) {
  cuda::InlineOutput p;
  p.shape = shape_of(v, bias);
  p.v = in(v);
  p.c = c.const_data_ptr<float>();
  if (!rk.defined()) return p;
  p.rk = in(rk);
  p.bias = bias.const_data_ptr<float>();
  return p;
}

at::Tensor output(
    const at::Tensor& read,
    const at::Tensor& v,
    const at::Tensor& c,
    const at::Tensor& rk,
    const at::Tensor& bias
) {
  const c10::cuda::CUDAGuard device(v.device());
  const at::Tensor o = at::empty_like(v);
  cuda::InlineOutput p = problem(v, c, rk, bias);
  p.read = in(read);
  p.o = out(o);
  C10_CUDA_CHECK(cuda::inline_output(p, stream_of(v)));
  return o;
}

InlineOutputGrads output_backward(
    const at::Tensor& v,
    const at::Tensor& c,
    const at::Tensor& rk,
    const at::Tensor& bias,
    const at::Tensor& dy
) {
  const c10::cuda::CUDAGuard device(v.device());
  InlineOutputGrads g{at::empty_like(c), at::empty_like(v), {}, {}};
  cuda::InlineOutput p = problem(v, c, rk, bias);
  p.dy = in(dy);
  p.dc = g.dc.mutable_data_ptr<float>();
  p.dv = out(g.dv);
  if (rk.defined()) {
    g.drk = at::empty_like(rk);
    g.dbias = at::empty({v.size(0), bias.size(0), bias.size(1)}, bias.options());
    p.drk = out(g.drk);
    p.dbias = g.dbias.mutable_data_ptr<float>();
  }
  C10_CUDA_CHECK(cuda::inline_output(p, stream_of(v)));
  return g;
}

at::Tensor mean(const at::Tensor& x) {
  const c10::cuda::CUDAGuard device(x.device());
  const at::Tensor y =
      at::empty({x.size(2), x.size(0), x.size(1), x.size(3)}, x.options().dtype(at::kBFloat16));
  cuda::RunningMean p;
  p.shape = shape_of(x, {});
  p.bf16 = x.scalar_type() == at::kBFloat16;
  p.x = x.const_data_ptr();
  p.mean = out(y);
  C10_CUDA_CHECK(cuda::running_mean(p, stream_of(x)));
  return y;
}

at::Tensor mean_backward(const at::Tensor& dmean, at::ScalarType type) {
  const c10::cuda::CUDAGuard device(dmean.device());
  const at::Tensor dx = at::empty(
      {dmean.size(1), dmean.size(2), dmean.size(0), dmean.size(3)}, dmean.options().dtype(type)
  );
  cuda::RunningMean p;
  p.shape = shape_by_head(dmean);
  p.bf16 = type == at::kBFloat16;
  p.dmean = in(dmean);
  p.dx = dx.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::running_mean(p, stream_of(dmean)));
  return dx;
}

at::Tensor gelu(const at::Tensor& z, const at::Tensor& b, const at::Tensor& dy) {
  const c10::cuda::CUDAGuard device(z.device());
  const at::Tensor y = at::empty_like(z);
  cuda::BiasGelu p;
  p.shape = shape_by_head(z);
  p.z = in(z);
  p.b = b.const_data_ptr<float>();
  p.dy = dy.defined() ? in(dy) : nullptr;
  p.y = out(y);
  C10_CUDA_CHECK(cuda::bias_gelu(p, stream_of(z)));
  return y;
}

}  // namespace

InlineKernels cuda_inline_kernels() {
  return {weights, weights_backward, output, output_backward, mean, mean_backward, gelu};
}

}  // namespace horner
