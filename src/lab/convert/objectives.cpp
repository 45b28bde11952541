#include "lab/convert/objectives.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "core/check.h"
#include "nn/head_loss/head_loss.h"
#include "nn/precision.h"

namespace horner {
namespace {

constexpr double kLeastNorm = 1e-12;  // squared, of a mixer's output

enum class Kind { fresh, copied, rest };

Rates rates_of(
    const Model& teacher,
    const Model& student,
    const std::function<double(const std::string& name, Kind kind)>& rate
) {
  const auto theirs = teacher.named_parameters();
  Rates rates;
  for (const auto& entry : student.named_parameters()) {
    const std::string& name = entry.key();
    const at::Tensor* same = theirs.find(name);
    const bool copied = same != nullptr && same->sizes() == entry.value().sizes();
    const bool mixer = name.find(".mixer.") != std::string::npos;  // else it may be an untied head
    rates[name] = rate(name, !mixer ? Kind::rest : copied ? Kind::copied : Kind::fresh);
  }
  return rates;
}

Head head_of(const Model& model) {
  const auto named = model.named_parameters(false);
  const at::Tensor* own = named.find("head_weight");
  const at::Tensor* bias = named.find("head_bias");
  return {
      own != nullptr ? *own : named["embedding"],
      bias != nullptr ? *bias : at::Tensor(),
      model.options().logit_cap};
}

at::Tensor mixed(Mixer& mixer, const at::Tensor& x) {
  State none;
  Context context;
  context.keep_state = false;
  return wide(mixer.forward(x, none, context));
}

}  // namespace

Rates align_rates(
    const Model& teacher, const Model& student, const Kept& kept, const AlignRates& given
) {
  return rates_of(teacher, student, [&](const std::string& name, Kind kind) {
    for (size_t l = 0; l < kept.size(); ++l) {
      if (kept[l] || !name.starts_with(fmt::format("layer_{}.mixer.", l))) continue;
      return kind == Kind::fresh ? given.fresh : given.copied;
    }
    return 0.0;
  });
}

Rates distil_rates(const Model& teacher, const Model& student, const DistilRates& given) {
  return rates_of(teacher, student, [&](const std::string&, Kind kind) {
    return kind == Kind::fresh ? given.fresh : kind == Kind::copied ? given.copied : given.rest;
  });
}

double highest(const Rates& rates) {
  double most = 0;
  for (const auto& [name, rate] : rates) most = std::max(most, rate);
  return most;
}

at::Tensor align_loss(Model& teacher, Model& student, const Kept& kept, const at::Tensor& tokens) {
  at::Tensor sum = at::zeros({}, at::device(tokens.device()).dtype(at::kFloat));
  each_mixer_input(teacher, tokens, [&](int64_t layer, const at::Tensor& x) {
    if (kept[size_t(layer)]) return;
    const at::Tensor wanted = mixed(teacher.block(layer).mixer(), x);  // m_l(x_l)
    const at::AutoGradMode graph(true);
    const at::Tensor got = mixed(student.block(layer).mixer(), x);  // m'_l(x_l)
    sum = sum + (got - wanted).square().sum() / wanted.square().sum().clamp_min(kLeastNorm);
  });
  const auto replaced = std::count(kept.begin(), kept.end(), false);
  return sum * (double(tokens.numel()) / double(replaced));
}

at::Tensor distil_loss(Model& teacher, Model& student, const at::Tensor& tokens, Context context) {
  context.keep_state = false;
  const auto hidden = [&](Model& model) {
    ModelState none;
    return model.hidden(tokens, none, context).flatten(0, 1);  // (B T,D)
  };
  at::Tensor wanted;
  {
    const c10::NoGradGuard no_graph;
    wanted = hidden(teacher);
  }
  return head_kl(hidden(student), head_of(student), wanted, head_of(teacher));
}

Objective objective_of(
    const std::shared_ptr<Model>& student, const Rates& rates, const Loss& loss
) {
  const double lr = highest(rates);
  HORNER_CHECK(lr > 0, "a learning rate must be above 0");
  return {
      student,
      [loss](const TargetBatch& batch, const Context& context) {
        return loss(batch.batch.tokens, context);
      },
      [rates, lr](const std::string& name) { return rates.at(name) / lr; }};
}

}  // namespace horner
