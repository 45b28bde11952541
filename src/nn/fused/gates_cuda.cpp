#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "nn/fused/fused.cuh"
#include "nn/fused/gates.cuh"
#include "nn/fused/gates.h"

namespace horner {
namespace {

cudaStream_t stream_of(const at::Tensor& x) {
  return at::cuda::getCurrentCUDAStream(x.device().index());
}
const float* floats(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<float>() : nullptr;
}

cuda::DecayCall decay_call(const at::Tensor& z, const Decay& d) {
  cuda::DecayCall p;
  p.n = int(z.size(-1));
  p.rows = z.numel() / p.n;
  p.bf16 = z.scalar_type() == at::kBFloat16;
  p.sign = d.negated ? -1.f : 1.f;
  p.scale = float(d.scale);
  p.b = floats(d.b);
  p.c = floats(d.c);
  p.z = z.const_data_ptr();
  return p;
}

DecayAndKeys decay_forward(const at::Tensor& z, const Decay& d, bool keys) {
  const c10::cuda::CUDAGuard device(z.device());
  const at::Tensor g = at::empty_like(z, z.options().dtype(at::kFloat));
  const at::Tensor k = keys ? at::empty_like(z) : at::Tensor();
  cuda::DecayCall p = decay_call(z, d);
  p.g = g.mutable_data_ptr<float>();
  if (keys) p.k = k.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::decay_forward(p, stream_of(z)));
  return {g, k};
}

DecayGrads decay_backward(
    const at::Tensor& z, const Decay& d, const at::Tensor& dg, const at::Tensor& dk
) {
  const c10::cuda::CUDAGuard device(z.device());
  DecayGrads g;
  cuda::DecayCall p = decay_call(z, d);
  g.dz = at::empty_like(z);
  p.dg = floats(dg);
  if (dk.defined()) p.dk = dk.const_data_ptr();
  p.dz = g.dz.mutable_data_ptr();
  const int blocks = cuda::row_blocks(p.rows, p.n);
  if (d.b.defined()) g.db = at::empty({blocks, p.n}, dg.options());
  if (d.c.defined()) g.dc = at::empty({blocks, p.n}, dg.options());
  if (d.b.defined()) p.db = g.db.mutable_data_ptr<float>();
  if (d.c.defined()) p.dc = g.dc.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::decay_backward(p, stream_of(z)));
  return g;
}

at::Tensor run_elu1(const at::Tensor& z, const void* dy) {
  const c10::cuda::CUDAGuard device(z.device());
  const at::Tensor out = at::empty_like(z);
  const bool bf16 = z.scalar_type() == at::kBFloat16;
  C10_CUDA_CHECK(
      cuda::elu1({z.numel(), bf16, z.const_data_ptr(), dy, out.mutable_data_ptr()}, stream_of(z))
  );
  return out;
}
at::Tensor elu1_forward(const at::Tensor& z) { return run_elu1(z, nullptr); }
at::Tensor elu1_backward(const at::Tensor& z, const at::Tensor& dy) {
  return run_elu1(z, dy.const_data_ptr());
}

cuda::ScaleCall scale_call(const at::Tensor& x, const at::Tensor& s) {
  cuda::ScaleCall p;
  p.n = int(x.size(-1));
  p.rows = x.numel() / p.n;
  p.bf16 = x.scalar_type() == at::kBFloat16;
  p.x = x.const_data_ptr();
  p.s = floats(s);
  return p;
}

at::Tensor scale_forward(const at::Tensor& x, const at::Tensor& s) {
  const c10::cuda::CUDAGuard device(x.device());
  const at::Tensor y = at::empty_like(x);
  cuda::ScaleCall p = scale_call(x, s);
  p.y = y.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::scale_forward(p, stream_of(x)));
  return y;
}

std::pair<at::Tensor, at::Tensor> scale_backward(
    const at::Tensor& x, const at::Tensor& s, const at::Tensor& dy
) {
  const c10::cuda::CUDAGuard device(x.device());
  const at::Tensor dx = at::empty_like(x), ds = at::empty_like(s);
  cuda::ScaleCall p = scale_call(x, s);
  p.dy = dy.const_data_ptr();
  p.dx = dx.mutable_data_ptr();
  p.ds = ds.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::scale_backward(p, stream_of(x)));
  return {dx, ds};
}

cuda::AugmentCall augment_call(const Augment& in) {
  cuda::AugmentCall p;
  p.K = int(in.q.size(3));
  p.V = int(in.v.size(3));
  p.heads = int(in.q.size(2));
  p.rows = in.q.numel() / p.K;
  p.bf16 = in.q.scalar_type() == at::kBFloat16;
  p.q = in.q.const_data_ptr();
  p.k = in.k.const_data_ptr();
  p.v = in.v.const_data_ptr();
  p.a = floats(in.a);
  p.offset = float(in.offset);
  return p;
}

at::Tensor augment_forward(const Augment& in) {
  const c10::cuda::CUDAGuard device(in.q.device());
  const at::Tensor y = at::empty_like(in.o);
  cuda::AugmentCall p = augment_call(in);
  p.o = in.o.const_data_ptr();
  p.y = y.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::augment_forward(p, stream_of(in.q)));
  return y;
}

AugmentGrads augment_backward(const Augment& in, const at::Tensor& dy) {
  const c10::cuda::CUDAGuard device(in.q.device());
  cuda::AugmentCall p = augment_call(in);
  const int blocks = cuda::row_blocks(p.rows, std::max(p.K, p.V));
  AugmentGrads g{
      at::empty_like(in.q),
      at::empty_like(in.k),
      at::empty({blocks, in.a.size(0), in.a.size(1)}, in.a.options()),
      at::empty_like(in.v)};
  p.dy = dy.const_data_ptr();
  p.dq = g.dq.mutable_data_ptr();
  p.dk = g.dk.mutable_data_ptr();
  p.da = g.da.mutable_data_ptr<float>();
  p.dv = g.dv.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::augment_backward(p, stream_of(in.q)));
  return g;
}

bool augment_takes(const Augment& in) {
  return cuda::augment_takes(int(in.q.size(3)), int(in.v.size(3)), int(in.q.size(2)));
}

}  // namespace

GateKernels cuda_gate_kernels() {
  return {
      decay_forward,
      decay_backward,
      elu1_forward,
      elu1_backward,
      scale_forward,
      scale_backward,
      augment_forward,
      augment_backward,
      augment_takes};
}

}  // namespace horner
