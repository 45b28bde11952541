// The kernels of a short convolution in plain operations: what they are compared with, and the backward's formulas.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "nn/heads.h"
#include "nn/precision.h"
#include "nn/short_conv.h"

namespace horner {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor shifted(const at::Tensor& x, int64_t by) {  // y_t = x_{t-by}, 0 outside
  const int64_t T = x.size(1);
  if (by >= 0) return at::constant_pad_nd(x.narrow(1, 0, T - by), {0, 0, by, 0});
  return at::constant_pad_nd(x.narrow(1, -by, T + by), {0, 0, 0, -by});
}

struct Piece {
  at::Tensor x, a, y, r;  // y = act(a); r: of each head, or undefined
};
std::vector<Piece> pieces(const std::vector<ConvPart>& parts, const ConvWeights& w) {
  const int64_t W = w.weight.size(1);
  std::vector<Piece> all;
  int64_t first = 0;
  for (const auto& [given, unit] : parts) {
    const int64_t C = given.size(2);
    Piece p;
    p.x = wide(given);
    p.a = w.bias.defined() ? w.bias.narrow(0, first, C).expand_as(p.x) : at::zeros_like(p.x);
    for (int64_t j = 0; j < W; ++j)
      p.a = p.a + shifted(p.x, W - 1 - j) * w.weight.narrow(0, first, C).select(1, j);
    p.y = w.silu ? at::silu(p.a) : p.a;
    if (unit > 0) {
      const at::Tensor heads = split_heads(p.y, C / unit);
      p.r = (heads.square().sum(-1, true) + 1e-6).rsqrt().expand_as(heads).flatten(2);
    }
    all.push_back(p);
    first += C;
  }
  return all;
}

Tensors forward(const std::vector<ConvPart>& parts, const ConvWeights& w) {
  Tensors o;
  for (const Piece& p : pieces(parts, w))
    o.push_back((p.r.defined() ? p.y * p.r : p.y).to(parts[0].x.scalar_type()));
  return o;
}

ConvGrads backward(const std::vector<ConvPart>& parts, const ConvWeights& w, const Tensors& given) {
  const std::vector<Piece> all = pieces(parts, w);
  const int64_t W = w.weight.size(1);
  ConvGrads g;
  Tensors dw;
  int64_t first = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const Piece& p = all[i];
    const int64_t C = p.x.size(2);
    at::Tensor d = wide(given[i]);
    if (p.r.defined()) {
      const at::Tensor dot = split_heads(p.y * d, C / parts[i].unit).sum(-1, true);
      const at::Tensor each = dot.expand({-1, -1, -1, parts[i].unit}).flatten(2);
      d = p.r * d - p.y * p.r.pow(3) * each;  // r do - y r^3 (y . do)
    }
    const at::Tensor s = p.a.sigmoid();
    if (w.silu) d = d * s * (1 + p.a * (1 - s));
    at::Tensor dx = at::zeros_like(p.x);
    Tensors rows;
    for (int64_t j = 0; j < W; ++j) {
      dx = dx + shifted(d, -(W - 1 - j)) * w.weight.narrow(0, first, C).select(1, j);
      rows.push_back((d * shifted(p.x, W - 1 - j)).flatten(0, 1).sum(0));
    }
    rows.push_back(d.flatten(0, 1).sum(0));
    dw.push_back(at::stack(rows));  // (W+1,C)
    g.dx.push_back(dx.to(parts[i].x.scalar_type()));
    first += C;
  }
  g.dweights = at::cat(dw, 1).unsqueeze(0);
  return g;
}

}  // namespace

ConvKernels plain_conv_kernels() { return {forward, backward}; }

}  // namespace horner
