#include "nn/short_conv.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

#include "core/initial.h"
#include "core/memory.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/norm.h"
#include "nn/parameter.h"
#include "nn/part.h"

namespace horner {
namespace {

constexpr int64_t kWidest = 4, kVector = 4, kWarpChannels = 128;
constexpr size_t kConvParts = 3;

using Tensors = std::vector<at::Tensor>;
using Maybe = std::optional<at::Tensor>;

const ConvKernels& kernels_for(const at::Tensor& x) {
  static const ConvKernels plain = plain_conv_kernels();
  return x.is_cuda() && conv_kernels().forward ? conv_kernels() : plain;
}

// x with rows that a kernel can read.
at::Tensor with_rows(const at::Tensor& x) {
  const bool fine = x.stride(2) == 1 && x.stride(1) % kVector == 0 && x.stride(0) % kVector == 0 &&
                    x.storage_offset() % kVector == 0 &&
                    x.size(1) * x.stride(1) < std::numeric_limits<int>::max();
  return fine ? x : x.contiguous();
}

class Convolve : public torch::autograd::Function<Convolve> {
 public:
  static Tensors forward(
      torch::autograd::AutogradContext* ctx,
      const Maybe& x0,
      const Maybe& x1,
      const Maybe& x2,
      const at::Tensor& weight,
      const Maybe& bias,
      bool silu,
      const std::vector<int64_t>& units
  ) {
    std::vector<ConvPart> parts;
    for (const Maybe& x : {x0, x1, x2})
      if (x) parts.push_back({with_rows(*x), units[parts.size()]});
    const ConvWeights weights{weight, bias ? *bias : at::Tensor(), silu};
    Tensors saved = {weight, weights.bias};
    for (const ConvPart& part : parts) saved.push_back(part.x);
    ctx->save_for_backward(saved);
    ctx->saved_data["silu"] = silu;
    ctx->saved_data["units"] = units;
    return kernels_for(weight).forward(parts, weights);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list given
  ) {
    const auto saved = ctx->get_saved_variables();
    const ConvWeights weights{saved[0], saved[1], ctx->saved_data["silu"].toBool()};
    const auto units = ctx->saved_data["units"].toIntVector();
    std::vector<ConvPart> parts;
    Tensors dy;
    for (size_t i = 0; i + 2 < saved.size(); ++i) {
      parts.push_back({saved[i + 2], units[i]});
      dy.push_back(given[i].contiguous());
    }
    ConvGrads g = kernels_for(weights.weight).backward(parts, weights, dy);
    const at::Tensor all = g.dweights.sum(0);
    const int64_t W = weights.weight.size(1);
    g.dx.resize(kConvParts);
    const at::Tensor bias = weights.bias.defined() ? all.select(0, W) : at::Tensor(), none;
    return {g.dx[0], g.dx[1], g.dx[2], all.narrow(0, 0, W).t(), bias, none, none};
  }
};

// The same through the dispatcher, so that an exporter sees one op.
Tensors traced(const at::Tensor& tail, const at::Tensor& x, const ConvWeights& w) {
  using Schema = std::tuple<at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, const Maybe&, const Maybe&, bool
  );
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("horner::short_conv", "").typed<Schema>();
  const auto maybe = [](const at::Tensor& y) { return y.defined() ? Maybe(y) : std::nullopt; };
  const auto [y, after] = op.call(x, w.weight, maybe(w.bias), maybe(tail), w.silu);
  return {y, after};
}

}  // namespace

ConvKernels& conv_kernels() {
  static ConvKernels kernels;
  return kernels;
}

bool can_convolve(const at::Tensor& x, const ConvWeights& w) {
  const bool type = x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
  return x.is_cuda() && has_memory(x) && type && conv_kernels().forward != nullptr &&
         x.numel() > 0 && x.size(2) % kVector == 0 && w.weight.size(1) <= kWidest;
}

bool can_convolve(const std::vector<ConvPart>& parts, const ConvWeights& w) {
  if (parts.size() > kConvParts) return false;
  for (const auto& [x, unit] : parts) {
    const bool fits = unit == 0 || (unit % kVector == 0 && kWarpChannels % unit == 0);
    if (!can_convolve(x, w) || x.scalar_type() != parts[0].x.scalar_type() || !fits) return false;
  }
  return !parts.empty();
}

Tensors convolve(const std::vector<ConvPart>& parts, const ConvWeights& w) {
  std::vector<Maybe> x(kConvParts);
  std::vector<int64_t> units(kConvParts, 0);
  for (size_t i = 0; i < parts.size(); ++i) x[i] = parts[i].x, units[i] = parts[i].unit;
  const bool twice = w.weight.scalar_type() == at::kDouble;
  const auto own = [&](const at::Tensor& y) { return twice ? y : y.to(at::kFloat); };
  const Maybe bias = w.bias.defined() ? Maybe(own(w.bias)) : std::nullopt;
  return Convolve::apply(x[0], x[1], x[2], own(w.weight).contiguous(), bias, w.silu, units);
}

Tensors convolve_after(const at::Tensor& tail, const at::Tensor& x, const ConvWeights& w) {
  const int64_t T = x.size(1), W = w.weight.size(1);
  const at::Tensor before = tail.defined() ? tail.to(x.scalar_type())
                                           : at::zeros({x.size(0), W - 1, x.size(2)}, x.options());
  const at::Tensor all = at::cat({before, x}, 1);
  at::Tensor sum = all.narrow(1, 0, T) * w.weight.select(1, 0);
  for (int64_t j = 1; j < W; ++j) sum = sum + all.narrow(1, j, T) * w.weight.select(1, j);
  if (w.bias.defined()) sum = sum + w.bias;
  return {(w.silu ? at::silu(sum) : sum).to(x.scalar_type()), all.narrow(1, T, W - 1)};
}

at::Tensor ShortConv::operator()(const at::Tensor& x, Pass& pass) const {
  if (!weight.defined()) return x;
  const Part part(parts::kConvolution);
  return pass.over_time(x, [&](const at::Tensor& u, at::Tensor& tail) {
    const int64_t T = u.size(1), W = weight.size(1);
    const ConvWeights weights{weight, bias, activation == "silu"};
    if (!tail.defined() && T >= W && can_convolve(u, weights)) {
      tail = u.narrow(1, T - W + 1, W - 1);
      return convolve({{u}}, weights)[0];
    }
    Tensors y = has_memory(u) ? convolve_after(tail, u, weights) : traced(tail, u, weights);
    tail = y[1];
    return y[0];
  });
}

Tensors ShortConv::operator()(const std::vector<ConvPart>& parts, Pass& pass) const {
  Tensors y;
  const ConvWeights weights{weight, bias, activation == "silu"};
  const int64_t T = parts[0].x.size(1), W = weight.defined() ? weight.size(1) : 0;
  if (weight.defined() && pass.fresh() && pass.starts().empty() && T >= W &&
      can_convolve(parts, weights)) {
    const Part part(parts::kConvolution);
    pass.over_time(parts[0].x, [&](const at::Tensor& first, at::Tensor& tail) {
      Tensors tails;
      for (const ConvPart& p : parts) tails.push_back(p.x.narrow(1, T - W + 1, W - 1));
      tail = at::cat(tails, 2);
      y = convolve(parts, weights);
      return first;
    });
    return y;
  }
  Tensors x;
  std::vector<int64_t> widths;
  for (const ConvPart& p : parts) x.push_back(p.x), widths.push_back(p.x.size(2));
  y = weight.defined() ? (*this)(at::cat(x, -1), pass).split_with_sizes(widths, -1) : x;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].unit > 0)
      y[i] = join_heads(unit_length(split_heads(y[i], widths[i] / parts[i].unit)));
  }
  return y;
}

ShortConv short_conv(
    torch::nn::Module& m, const std::string& name, int64_t channels, const ShortConvOptions& o
) {
  ShortConv conv;
  if (o.kernel == 0) return conv;
  const Initial own(name);
  const double bound = 1 / std::sqrt(double(o.kernel));
  conv.activation = o.activation;
  conv.weight = parameter(m, name + "_weight", [&] {
    return uniform({channels, o.kernel}, -bound, bound);
  });
  if (o.bias)
    conv.bias = parameter(m, name + "_bias", [&] { return uniform({channels}, -bound, bound); });
  return conv;
}

}  // namespace horner
