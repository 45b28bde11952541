#include "train/optimizer.h"

#include <cmath>

#include "core/check.h"

namespace horner {
namespace {

constexpr int64_t kAlign = 16;  // elements: a view begins on a cache line

bool decays(const std::string& name, const at::Tensor& p) {
  return p.dim() >= 2 &&
         (name.ends_with("weight") || name.ends_with("embedding") || name.ends_with("positions"));
}

}  // namespace

Optimizer::Optimizer(torch::nn::Module& model, const OptimOptions& o) : o_(o) {
  const c10::NoGradGuard no_graph;
  groups_ = {
      {"matrices", o.weight_decay, {}, {}, {}, {}, {}, {}}, {"vectors", 0, {}, {}, {}, {}, {}, {}}};
  at::Device device(at::kCPU);
  std::vector<int64_t> length(2, 0);
  for (auto& entry : model.named_parameters()) {
    const at::Tensor& p = entry.value();
    HORNER_CHECK(
        p.scalar_type() == at::kFloat, "[optim] {} must be fp32, got {}", entry.key(), p.toString()
    );
    const size_t g = decays(entry.key(), p) ? 0 : 1;
    groups_[g].pieces.push_back({entry.key(), p, length[g], length[g] + p.numel()});
    length[g] += (p.numel() + kAlign - 1) / kAlign * kAlign;
    device = p.device();
  }
  for (size_t g = 0; g < 2; ++g) {
    Group& group = groups_[g];
    for (at::Tensor* vector : {&group.weights, &group.gradients, &group.mean, &group.square})
      *vector = at::zeros({length[g]}, at::device(device).dtype(at::kFloat));
    for (Piece& piece : group.pieces) {
      const auto view = [&](const at::Tensor& vector) {
        return vector.narrow(0, piece.begin, piece.end - piece.begin).view(piece.weight.sizes());
      };
      view(group.weights).copy_(piece.weight);
      piece.weight.set_data(view(group.weights));
      piece.weight.mutable_grad() = view(group.gradients);
    }
    if (o.ema > 0) group.average = group.weights.clone();
  }
  std::erase_if(groups_, [](const Group& group) { return group.pieces.empty(); });
  steps_ = at::zeros({}, at::device(device).dtype(at::kFloat));
}

void Optimizer::zero_gradients() {
  for (Group& group : groups_) group.gradients.zero_();
}

at::Tensor Optimizer::step(double lr) {
  const c10::NoGradGuard no_graph;
  std::vector<at::Tensor> norms;
  for (const Group& group : groups_) norms.push_back(group.gradients.norm());
  const at::Tensor norm = at::stack(norms).norm();
  // The kernel divides by grad_scale, and does nothing if found_inf is 1.
  const at::Tensor scale =
      o_.clip > 0 ? (norm / o_.clip).clamp_min(1.0) : at::ones({}, norm.options());
  const at::Tensor bad = norm.isfinite().logical_not().to(at::kFloat);
  steps_.add_(1);
  for (Group& group : groups_) {
    at::_fused_adamw_(
        {group.weights},
        {group.gradients},
        {group.mean},
        {group.square},
        {},
        {steps_},
        lr,
        o_.beta1,
        o_.beta2,
        group.decay,
        o_.eps,
        false,
        false,
        scale,
        bad
    );
    if (group.average.defined()) group.average.lerp_(group.weights, 1 - o_.ema);
  }
  steps_.sub_(bad);
  return norm;
}

std::string Optimizer::worst_gradient() const {
  std::string worst;
  double largest = -1;
  for (const Group& group : groups_) {
    for (const Piece& piece : group.pieces) {
      const at::Tensor g = group.gradients.narrow(0, piece.begin, piece.end - piece.begin);
      const double norm = g.to(at::kDouble).norm().item<double>();
      const std::string name = fmt::format("group {}: {}", group.name, piece.name);
      if (!std::isfinite(norm)) return "not finite in " + name;
      if (norm > largest) worst = fmt::format("largest ({:.3g}) in {}", norm, name);
      largest = std::max(largest, norm);
    }
  }
  return worst;
}

void Optimizer::swap_average() {
  const c10::NoGradGuard no_graph;
  for (Group& group : groups_) {
    if (!group.average.defined()) return;
    const at::Tensor own = group.weights.clone();
    group.weights.copy_(group.average);  // in place: the parameters are views
    group.average.copy_(own);
  }
}

std::vector<std::pair<std::string, at::Tensor>> Optimizer::state() const {
  std::vector<std::pair<std::string, at::Tensor>> all = {{"steps", steps_}};
  for (const Group& group : groups_) {
    for (const Piece& piece : group.pieces) {
      const auto add = [&](const char* kind, const at::Tensor& vector) {
        if (!vector.defined()) return;
        all.emplace_back(
            fmt::format("{}.{}", kind, piece.name),
            vector.narrow(0, piece.begin, piece.end - piece.begin).view(piece.weight.sizes())
        );
      };
      add("mean", group.mean);
      add("square", group.square);
      if (group.average.defined())
        add("weight", group.weights);  // the model's file holds the average
    }
  }
  return all;
}

void Optimizer::load(const Safetensors& file) {
  const c10::NoGradGuard no_graph;
  steps_.copy_(file.get("steps"));
  for (Group& group : groups_) {
    for (const Piece& piece : group.pieces) {
      const auto read = [&](const char* kind, const at::Tensor& vector) {
        const at::Tensor view =
            vector.narrow(0, piece.begin, piece.end - piece.begin).view(piece.weight.sizes());
        view.copy_(file.get(fmt::format("{}.{}", kind, piece.name)));
      };
      read("mean", group.mean);
      read("square", group.square);
      if (!group.average.defined()) continue;
      group.average.narrow(0, piece.begin, piece.end - piece.begin)
          .copy_(piece.weight.flatten());  // what the model's file held
      read("weight", group.weights);
    }
  }
}

}  // namespace horner
