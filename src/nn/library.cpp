// torch.ops.horner.short_conv: the convolution of nn/short_conv.h as one op, composite as mixers/library.cpp. Layers call it
// where a tracer stands for their tensors: an exporter may keep it (python/horner/onnx.py), everything else sees through it.
#include <torch/library.h>

#include "nn/short_conv.h"

namespace horner {
namespace {

using Maybe = std::optional<at::Tensor>;

std::tuple<at::Tensor, at::Tensor> convolved(
    const at::Tensor& x, const at::Tensor& weight, const Maybe& bias, const Maybe& tail, bool silu
) {
  const ConvWeights weights{weight, bias.value_or(at::Tensor()), silu};
  const auto y = convolve_after(tail.value_or(at::Tensor()), x, weights);
  return {y[0], y[1]};
}

}  // namespace
}  // namespace horner

TORCH_LIBRARY_FRAGMENT(horner, m) {
  m.def(
      "short_conv(Tensor x, Tensor weight, Tensor? bias=None, Tensor? tail=None, bool silu=False)"
      " -> (Tensor, Tensor)",
      horner::convolved
  );
}

TORCH_LIBRARY_IMPL(horner, FuncTorchBatchedDecomposition, m) {
  m.impl("short_conv", horner::convolved);
}
