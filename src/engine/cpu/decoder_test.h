// A small model, and how far the CPU decoder is from its Model::forward.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include "engine/cpu/decoder.h"

namespace horner {

inline std::shared_ptr<Model> small_model(
    const std::vector<std::string>& pattern, const std::string& more = ""
) {
  ModelOptions o;
  o.pattern = pattern;
  o.layers = 2, o.D = 48, o.vocabulary = 61, o.mlp_dim = 72;
  from_text(o, more);
  const auto model = make_model(o, 3);
  model->eval();
  const c10::NoGradGuard no_graph;
  for (const auto& p : model->named_parameters()) {
    if (p.value().dim() == 2) p.value().mul_(6);  // so that attention is not flat
    if (p.value().dim() == 1) p.value().add_(at::rand_like(p.value()) * 0.3);
    if (p.key().find("mixer.centre") != std::string::npos) p.value().normal_(0, 0.4);
    if (p.value().dim() == 3) p.value().add_(at::randn_like(p.value()) * 0.3);
  }
  return model;
}

inline std::vector<int32_t> random_tokens(int64_t n) {
  at::manual_seed(1);
  const at::Tensor ids = at::randint(61, {n}, at::kInt);
  return {ids.data_ptr<int32_t>(), ids.data_ptr<int32_t>() + n};
}

inline at::Tensor reference(Model& model, const std::vector<int32_t>& tokens) {  // (n,vocabulary)
  const c10::NoGradGuard no_graph;
  ModelState state;
  return model.forward(at::tensor(tokens, at::kLong).unsqueeze(0), state).squeeze(0);
}

inline double distance(std::span<const float> logits, const at::Tensor& wanted) {
  const at::Tensor got = at::tensor(at::ArrayRef<float>(logits.data(), logits.size()));
  return ((got - wanted.flatten()).norm() / wanted.norm()).item<double>();
}

// The largest relative distance of a prompt, steps, a fork, a stream that goes back, and a prompt of two pieces.
inline double worst_distance(CpuDecoder& decoder, Model& model) {
  const std::vector<int32_t> tokens = random_tokens(620);
  const at::Tensor wanted = reference(model, tokens);
  const std::span<const int32_t> all = tokens;
  double worst = 0;
  const auto compare = [&](std::span<const float> logits, int64_t row) {
    worst = std::max(worst, distance(logits, wanted[row]));
  };
  Pages stream;
  compare(decoder.prefill(stream, all.first(30)), 29);
  compare(decoder.prefill(stream, all.subspan(30, 170)), 199);
  const Pages kept = stream;
  compare(decoder.prefill(stream, all.subspan(200, 50)), 249);
  for (int64_t i = 250; i < 270; ++i)  // across the border of two pages
    compare(decoder.step(stream, tokens[size_t(i)]), i);
  Pages fork = stream;
  compare(decoder.prefill(fork, all.subspan(270, 5)), 274);
  const int32_t other[] = {1, 2, 3, 4};
  decoder.prefill(stream, other);  // does not change the fork
  compare(decoder.step(fork, tokens[275]), 275);
  stream = kept;
  compare(decoder.prefill(stream, all.subspan(200, 60)), 259);
  Pages fresh;
  compare(decoder.prefill(fresh, tokens), 619);
  return worst;
}

}  // namespace horner
