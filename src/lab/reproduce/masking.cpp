#include "lab/reproduce/masking.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/random.h"
#include "nn/heads.h"

namespace horner {
namespace {

int64_t columns_of(int64_t T) {
  const auto columns = int64_t(std::llround(std::sqrt(double(T))));
  HORNER_CHECK(columns * columns == T, "[masking] the tokens must form a square, got {}", T);
  return columns;
}

// 1 where two tokens of a square image lie at most side / 2 apart along both sides.
at::Tensor around(int64_t side, int64_t columns) {
  const at::Tensor t = at::arange(columns * columns, at::kLong);
  const at::Tensor row = t.floor_divide(columns), col = t.remainder(columns);
  const auto apart = [](const at::Tensor& x) { return (x.unsqueeze(0) - x.unsqueeze(1)).abs(); };
  return at::maximum(apart(row), apart(col)).le(side / 2).to(at::kFloat);
}

// What the mixer of a layer gets.   (B,T,D)
at::Tensor input_of(Block& block, const at::Tensor& x) {
  at::Tensor found;
  Context context;
  context.on_input = [&](const Mixer&, const at::Tensor& in) { found = in; };
  State state;
  block.forward(x, state, context);
  return found;
}

// The mixer's output with masked weights.   (B,T,D)
at::Tensor mixed(Mixer& mixer, const at::Tensor& in, const at::Tensor& masked) {
  const at::Tensor w = mixer.map(in), keep = 1 - masked.to(w.scalar_type());  // (B,H,T,T), (T,T)
  const at::Tensor rest = w * keep, n = keep.sum(-1, true);
  const at::Tensor fair = mixer.name() == "inline"
                              ? rest + keep * (w.sum(-1, true) - rest.sum(-1, true)) / n
                              : rest * (w.sum(-1, true) / rest.sum(-1, true).clamp_min(1e-12));
  const at::Tensor v = mixer.core(in).in.v.to(w.scalar_type());  // (B,T,H,V)
  const at::Tensor o = join_heads(at::einsum("bhts,bshv->bthv", {fair, v})).to(in.scalar_type());
  const auto parameters = mixer.named_parameters();
  const at::Tensor* bias = parameters.find("out_bias");
  return at::linear(o, parameters["out_weight"], bias != nullptr ? *bias : at::Tensor());
}

// The block without its mixer: its output projection gives 0.
at::Tensor without_mixer(Block& block, const at::Tensor& x) {
  std::vector<std::pair<at::Tensor, at::Tensor>> saved;
  for (const auto& p : block.mixer().named_parameters()) {
    if (p.key() == "out_weight" || p.key() == "out_bias") {
      saved.emplace_back(p.value(), p.value().clone());
      p.value().zero_();
    }
  }
  State state;
  const at::Tensor y = block.forward(x, state, {});
  for (auto& [parameter, value] : saved) parameter.copy_(value);
  return y;
}

}  // namespace

at::Tensor masked_tokens(const PatchMask& mask, int64_t columns, uint64_t seed) {
  const int64_t T = columns * columns;
  if (mask.side == 0) return at::zeros({T, T});
  const at::Tensor local = around(mask.side, columns);
  if (mask.local) return local;
  at::Tensor masked = at::zeros({T, T});
  for (int64_t t = 0; t < T; ++t) {  // as many as the square has here, which is cut at the edges
    Random random(seed, Split::test, Stream::noise, uint64_t(t));
    for (const int64_t s : random.distinct(T, local[t].sum().item<int64_t>())) masked[t][s] = 1;
  }
  return masked;
}

at::Tensor masked_forward(Model& model, const at::Tensor& features, const at::Tensor& masked) {
  const c10::NoGradGuard no_graph;
  model.eval();
  ModelState state;
  at::Tensor x = model.begin(features, state);
  for (int64_t layer = 0; layer < model.options().layers; ++layer) {
    Block& block = model.block(layer);
    x = without_mixer(block, x + mixed(block.mixer(), input_of(block, x), masked));
  }
  return model.logits(model.end(x, {}));
}

double masked_accuracy(Model& model, const Task& task, const PatchMask& mask, int64_t examples) {
  constexpr int64_t kBatch = 50;
  double right = 0;
  for (int64_t first = 0; first < examples; first += kBatch) {
    std::vector<int64_t> indices(size_t(std::min(kBatch, examples - first)));
    std::iota(indices.begin(), indices.end(), first);
    const Batch batch = task.batch(Split::test, indices);
    const int64_t columns = columns_of(batch.features.size(1));
    const at::Tensor masked = masked_tokens(mask, columns, uint64_t(first));
    const at::Tensor said = masked_forward(model, batch.features, masked).argmax(-1);
    right += (said == batch.labels).sum().item<double>();
  }
  return right / double(examples);
}

double local_share(Model& model, const at::Tensor& features) {
  const c10::NoGradGuard no_graph;
  model.eval();
  const at::Tensor near = around(3, columns_of(features.size(1)));
  ModelState state;
  at::Tensor x = model.begin(features, state);
  double sum = 0;
  for (int64_t layer = 0; layer < model.options().layers; ++layer) {
    Block& block = model.block(layer);
    const at::Tensor w = block.mixer().map(input_of(block, x)).abs();
    sum += ((w * near.to(w.scalar_type())).sum(-1) / w.sum(-1)).mean().item<double>();
    State none;
    x = block.forward(x, none, {});
  }
  return sum / double(model.options().layers);
}

}  // namespace horner
