#include "train/finite.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "train/optimizer.h"
#include "train/train.h"

namespace horner {

std::string not_finite(const NamedTensors& tensors) {
  const c10::NoGradGuard no_graph;
  std::vector<at::Tensor> fine;
  std::vector<const std::string*> names;
  for (const auto& [name, x] : tensors) {
    if (!x.defined() || !(x.is_floating_point() || x.is_complex())) continue;
    fine.push_back(at::isfinite(x).all());
    names.push_back(&name);
  }
  if (fine.empty()) return "";
  const at::Tensor all = at::stack(fine).to(at::kCPU);
  for (size_t i = 0; i < fine.size(); ++i) {
    if (!all[int64_t(i)].item<bool>()) return *names[i];
  }
  return "";
}

std::string not_finite(const Model& model, const Optimizer& optimizer) {
  NamedTensors all = optimizer.state();
  for (const Optimizer::Owned& part : optimizer.owned(optimizer.share().rank))
    all.emplace_back(part.piece->name, part.of(part.stretch->weights));
  for (const auto& entry : model.named_buffers()) all.emplace_back(entry.key(), entry.value());
  return not_finite(all);
}

void check_finite(const std::string& name, int64_t step) {
  if (!name.empty())
    throw RunError(
        "step {}: {} is not finite; it is not saved, and the checkpoints before it are good",
        step,
        name
    );
}

void check_finite(const Scores& scores, const char* split, int64_t step) {
  const auto loss = scores.values.find("loss");
  if (loss != scores.values.end() && !std::isfinite(loss->second))
    throw RunError("step {}: the {} loss is {}", step, split, loss->second);
}

}  // namespace horner
