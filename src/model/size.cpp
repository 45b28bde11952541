#include "model/size.h"

#include "core/check.h"
#include "nn/initial_values.h"

namespace horner {
namespace {

double count(const torch::nn::Module& module) {
  double sum = 0;
  for (const at::Tensor& p : module.parameters()) sum += double(p.numel());
  return sum;
}

}  // namespace

void check_size(const ModelOptions& o) {
  const struct {
    const char* name;
    int64_t value, most;
  } limits[] = {
      {"layers", o.layers, kMostLayers},
      {"D", o.D, kMostWidth},
      {"vocabulary", o.vocabulary, kMostTokens},
      {"features", o.features, kMostWidth},
      {"classes", o.classes, kMostTokens},
      {"mlp_dim", o.mlp_dim, 16 * kMostWidth},
      {"positions", o.positions, kMostTokens},
      {"segments", o.segments, kMostTokens}};
  for (const auto& [name, value, most] : limits)
    HORNER_CHECK(value <= most, "[model] {} must be at most {}, got {}", name, most, value);
}

double parameters_of(const ModelOptions& o) {
  check_size(o);
  const ShapesOnly shapes;
  ModelOptions once = o;  // each mixer of the pattern once
  const int64_t P = std::max<int64_t>(1, int64_t(o.pattern.size()));
  once.layers = std::min(o.layers, P);
  Model model(once);
  double sum = count(model);
  for (int64_t p = 0; p < once.layers; ++p) {
    const int64_t times = (o.layers - 1 - p) / P;  // layers p + P, p + 2 P, ..
    sum += double(times) * count(model.block(p));
  }
  return sum;
}

}  // namespace horner
