#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "nn/part.h"
#include "train/memory.h"
#include "train/optimizer_file.h"

namespace horner {
namespace {

constexpr int64_t kAlign = 16;               // elements: a view begins on a cache line
constexpr int64_t kStretchBytes = 25 << 20;  // what is sent at a time

bool decays(const std::string& name, const at::Tensor& p) {
  return p.dim() >= 2 &&
         (name.ends_with("weight") || name.ends_with("embedding") || name.ends_with("positions"));
}

int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// 0: outside of the blocks; l + 1: block l, whose parameters are named layer_L.*
int64_t unit_of(const std::string& name) {
  constexpr std::string_view kLayer = "layer_";
  return name.starts_with(kLayer) ? std::atoll(name.c_str() + kLayer.size()) + 1 : 0;
}

}  // namespace

Shard shard_of(const TrainOptions& o) {
  return o.train.shard == "full"        ? Shard::full
         : o.train.shard == "optimizer" ? Shard::optimizer
                                        : Shard::none;
}

Optimizer::Optimizer(
    torch::nn::Module& model,
    const OptimOptions& o,
    Sharing share,
    std::optional<at::Device> device,
    const RateShare& rate
)
    : o_(o), share_(std::move(share)) {
  const c10::NoGradGuard no_graph;
  collect(model, rate);
  for (Group& group : groups_) {
    if (!device) device = group.pieces[0].weight.device();
    cut(group);
    lay_out(group);
    allocate(group, *device);
  }
  steps_ = at::zeros({}, at::device(device.value_or(at::kCPU)).dtype(at::kFloat));
}

Optimizer::Group& Optimizer::group_of(bool decays, double rate) {
  for (Group& group : groups_) {
    if (group.rate == rate && group.name.starts_with(decays ? "matrices" : "vectors")) return group;
  }
  Group& group = groups_.emplace_back();
  group.name = decays ? "matrices" : "vectors";
  if (rate != 1) group.name += fmt::format(" at {:.3g} of the rate", rate);
  group.decay = decays ? o_.weight_decay : 0;
  group.rate = rate;
  return group;
}

void Optimizer::collect(torch::nn::Module& model, const RateShare& rate) {
  group_of(true, 1);  // the order of the groups is that of sums
  group_of(false, 1);
  for (auto& entry : model.named_parameters()) {
    const at::Tensor& p = entry.value();
    HORNER_CHECK(
        p.scalar_type() == at::kFloat, "[optim] {} must be fp32, got {}", entry.key(), p.toString()
    );
    const double share = rate ? rate(entry.key()) : 1;
    if (rate) p.set_requires_grad(share > 0);
    if (share > 0) group_of(decays(entry.key(), p), share).pieces.push_back({entry.key(), p, 0, 0});
  }
  std::erase_if(groups_, [](const Group& group) { return group.pieces.empty(); });
  if (share_.shard != Shard::full) return;
  for (Group& group : groups_)  // a unit is one stretch
    std::stable_sort(group.pieces.begin(), group.pieces.end(), [](const Piece& a, const Piece& b) {
      return unit_of(a.name) < unit_of(b.name);
    });
}

// Stretches of 25 MB, from the end, where the backward begins; with Shard::full one for each unit.
void Optimizer::cut(Group& group) const {
  Stretch stretch{};
  int64_t bytes = 0;
  const auto close = [&] {
    if (stretch.pieces.empty()) return;
    std::reverse(stretch.pieces.begin(), stretch.pieces.end());
    group.stretches.push_back(std::move(stretch));
    stretch = {};
    bytes = 0;
  };
  for (size_t i = group.pieces.size(); i-- > 0;) {
    const Piece& piece = group.pieces[i];
    const int64_t unit = share_.shard == Shard::full ? unit_of(piece.name) : 0;
    if (unit != stretch.unit) close();
    stretch.unit = unit;
    stretch.pieces.push_back(i);
    bytes += piece.weight.numel() * int64_t(sizeof(float));
    if (share_.shard != Shard::full && bytes >= kStretchBytes) close();
  }
  close();
  std::reverse(group.stretches.begin(), group.stretches.end());
}

void Optimizer::lay_out(Group& group) const {
  for (Stretch& stretch : group.stretches) {
    stretch.begin = group.length;
    for (const size_t i : stretch.pieces) {
      Piece& piece = group.pieces[i];
      piece.begin = group.length;
      piece.end = piece.begin + piece.weight.numel();
      group.length = rounded_up(piece.end, kAlign);
    }
    const int64_t step = share_.shard == Shard::none ? kAlign : kAlign * share_.world;
    group.length = stretch.begin + rounded_up(group.length - stretch.begin, step);
    stretch.end = group.length;
  }
}

void Optimizer::allocate(Group& group, at::Device device) const {
  const auto zeros = [&](int64_t n) {
    return at::zeros({n}, at::device(device).dtype(at::kFloat));
  };
  const bool full = share_.shard == Shard::full;
  const int64_t own = group.length / (share_.shard == Shard::none ? 1 : share_.world);
  at::Tensor weights = zeros(full ? own : group.length);
  (full ? group.own_weights : group.weights) = weights;
  int64_t before = 0;  // what this process owns of the stretches before
  for (Stretch& stretch : group.stretches) {
    const int64_t length = stretch.end - stretch.begin;
    const int64_t n = share_.shard == Shard::none ? length : length / share_.world;
    const int64_t first = share_.shard == Shard::none ? 0 : share_.rank * n;
    const at::Tensor whole = full ? zeros(length) : weights.narrow(0, stretch.begin, length);
    for (const size_t i : stretch.pieces) {
      Piece& piece = group.pieces[i];
      const at::Tensor view = whole.narrow(0, piece.begin - stretch.begin, piece.end - piece.begin)
                                  .view(piece.weight.sizes());
      view.copy_(piece.weight);
      piece.weight.set_data(view);
    }
    stretch.weights = full ? weights.narrow(0, before, n) : whole.narrow(0, first, n);
    if (full) {
      stretch.weights.copy_(whole.narrow(0, first, n));
      stretch.whole = whole;
      free_memory(whole);
    }
    before += n;
  }
  at::Tensor gradients = zeros(full ? own : group.length);
  (full ? group.own_gradients : group.gradients) = gradients;
  group.mean = zeros(own);
  group.square = zeros(own);
  if (o_.ema > 0) group.average = zeros(own);
  before = 0;
  for (Stretch& stretch : group.stretches) {
    const int64_t n = stretch.weights.size(0);
    const int64_t first = share_.shard == Shard::none ? 0 : share_.rank * n;
    stretch.gradients = gradients.narrow(0, full ? before : stretch.begin + first, n);
    stretch.mean = group.mean.narrow(0, before, n);
    stretch.square = group.square.narrow(0, before, n);
    if (group.average.defined()) {
      stretch.average = group.average.narrow(0, before, n);
      stretch.average.copy_(stretch.weights);
    }
    before += n;
  }
  if (full) return;
  for (const Piece& piece : group.pieces)
    piece.weight.mutable_grad() =
        gradients.narrow(0, piece.begin, piece.end - piece.begin).view(piece.weight.sizes());
}

void Optimizer::zero_gradients() {
  const Part part(parts::kOptimiser);
  for (Group& group : groups_)
    (share_.shard == Shard::full ? group.own_gradients : group.gradients).zero_();
}

at::Tensor Optimizer::step(double lr) {
  const at::Device device = steps_.device();
  return step(at::full({1}, lr, at::device(device).dtype(rate_type(device))));
}

at::Tensor Optimizer::step(const at::Tensor& lr) {
  const Part part(parts::kOptimiser);
  const c10::NoGradGuard no_graph;
  std::vector<at::Tensor> norms;
  for (const Group& group : groups_) {
    if (share_.shard == Shard::none) {
      norms.push_back(group.gradients.norm());
      continue;
    }
    for (const Stretch& stretch : group.stretches) norms.push_back(stretch.gradients.norm());
  }
  at::Tensor norm = at::stack(norms).norm();
  if (share_.shard != Shard::none) {
    norm = norm.square();
    share_.sum(norm);
    norm = norm.sqrt();
  }
  // The kernel divides by grad_scale, and does nothing if found_inf is 1.
  const at::Tensor scale =
      o_.clip > 0 ? (norm / o_.clip).clamp_min(1.0) : at::ones({}, norm.options());
  const at::Tensor bad = norm.isfinite().logical_not().to(at::kFloat);
  steps_.add_(1);
  for (Group& group : groups_) {
    std::vector<at::Tensor> weights, gradients, means, squares;
    for (const Stretch& stretch : group.stretches) {
      weights.push_back(stretch.weights);
      gradients.push_back(stretch.gradients);
      means.push_back(stretch.mean);
      squares.push_back(stretch.square);
    }
    at::_fused_adamw_(
        weights,
        gradients,
        means,
        squares,
        {},
        std::vector<at::Tensor>(weights.size(), steps_),
        group.rate == 1 ? lr : lr * group.rate,
        o_.beta1,
        o_.beta2,
        group.decay,
        o_.eps,
        false,
        false,
        scale,
        bad
    );
    if (!group.average.defined()) continue;
    for (const Stretch& stretch : group.stretches)
      stretch.average.lerp_(stretch.weights, 1 - o_.ema);
  }
  steps_.sub_(bad);
  gather_weights();
  return norm;
}

void Optimizer::gather_weights() {
  if (share_.shard != Shard::optimizer) return;
  for (Group& group : groups_) {
    for (const Stretch& stretch : group.stretches)
      share_.gather(
          group.weights.narrow(0, stretch.begin, stretch.end - stretch.begin), stretch.weights
      );
  }
}

std::string Optimizer::worst_gradient() const {
  std::string worst;
  double largest = -1;
  for (const Group& group : groups_) {
    for (const Owned& part : owned(share_.rank)) {
      if (part.piece < group.pieces.data() || part.piece > &group.pieces.back()) continue;
      const at::Tensor g = part.of(part.stretch->gradients);
      const double norm = g.to(at::kDouble).norm().item<double>();
      const std::string name = fmt::format("group {}: {}", group.name, part.piece->name);
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
    for (const Stretch& stretch : group.stretches) {
      const at::Tensor own = stretch.weights.clone();
      stretch.weights.copy_(stretch.average);  // in place: the parameters are views
      stretch.average.copy_(own);
    }
  }
  gather_weights();
}

Optimizer::Averaged::~Averaged() {
  try {
    optimizer_.swap_average();
  } catch (const std::exception&) {
    // Another process is gone. The next call that needs it says so.
  }
}

std::vector<Optimizer::Owned> Optimizer::owned(int64_t rank) const {
  std::vector<Owned> all;
  for (const Group& group : groups_) {
    for (const Stretch& stretch : group.stretches) {
      const int64_t n = stretch.weights.size(0);
      const int64_t first = stretch.begin + (share_.shard == Shard::none ? 0 : rank * n);
      for (const size_t i : stretch.pieces) {
        const Piece& piece = group.pieces[i];
        const int64_t begin = std::max(first, piece.begin), end = std::min(first + n, piece.end);
        if (begin < end)
          all.push_back({&piece, &stretch, begin - piece.begin, end - piece.begin, begin - first});
      }
    }
  }
  return all;
}

std::vector<std::pair<std::string, at::Tensor>> Optimizer::state() const {
  std::vector<std::pair<std::string, at::Tensor>> all = {{"steps", steps_}};
  for (const Owned& part : owned(share_.rank)) {
    const auto add = [&](const char* kind, const at::Tensor& own) {
      if (!own.defined()) return;
      const at::Tensor x = part.of(own);
      all.emplace_back(
          fmt::format("{}.{}", kind, part.piece->name),
          share_.shard == Shard::none ? x.view(part.piece->weight.sizes()) : x
      );
    };
    add("mean", part.stretch->mean);
    add("square", part.stretch->square);
    if (part.stretch->average.defined())
      add("weight", part.stretch->weights);  // the model's file holds the average
  }
  return all;
}

void Optimizer::load(const OptimizerSource& source, const Safetensors& model) {
  const c10::NoGradGuard no_graph;
  steps_.copy_(source.steps());
  for (const Owned& part : owned(share_.rank)) {
    const std::string& name = part.piece->name;
    const auto read = [&](const char* kind, const at::Tensor& own) {
      source.read(kind, name, part.begin, part.end, part.of(own));
    };
    const auto read_model = [&](const at::Tensor& own) {
      part.of(own).copy_(model.get(name).flatten().narrow(0, part.begin, part.end - part.begin));
    };
    read("mean", part.stretch->mean);
    read("square", part.stretch->square);
    const bool averages = part.stretch->average.defined();
    read_model(averages ? part.stretch->average : part.stretch->weights);
    if (averages) read("weight", part.stretch->weights);
  }
  gather_weights();
}

int64_t Optimizer::bytes() const {
  int64_t total = 0;
  for (const Group& g : groups_) {
    for (const at::Tensor* x :
         {&g.weights,
          &g.gradients,
          &g.mean,
          &g.square,
          &g.average,
          &g.own_weights,
          &g.own_gradients})
      total += x->defined() ? int64_t(x->nbytes()) : 0;
  }
  return total;
}

}  // namespace horner
