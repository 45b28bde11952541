#include "lab/convert/plan.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/number.h"

namespace horner {
namespace {

constexpr int64_t kRows = 512;  // positions whose logits exist at one time
constexpr int64_t kEvery = 4;   // the rule that a plan is compared with

Context without_state() {
  Context context;
  context.keep_state = false;
  return context;
}

at::Tensor step(Block& block, const at::Tensor& x) {
  State none;
  return block.forward(x, none, without_state());
}

// Mean over positions of sum p' (log p' - log p) of one window.   (T,D) each
double mean_kl(const Model& model, const at::Tensor& hidden, const at::Tensor& teacher) {
  double sum = 0;
  for (int64_t t = 0; t < hidden.size(0); t += kRows) {
    const int64_t n = std::min(kRows, hidden.size(0) - t);
    const at::Tensor log_p = at::log_softmax(model.logits(hidden.narrow(0, t, n)), -1);
    const at::Tensor wanted = at::log_softmax(model.logits(teacher.narrow(0, t, n)), -1);
    sum += (wanted.exp() * (wanted - log_p)).sum().item<double>();
  }
  return sum / double(hidden.size(0));
}

std::vector<int64_t> first_of(const std::vector<int64_t>& order, size_t count) {
  std::vector<int64_t> list(order.begin(), order.begin() + int64_t(count));
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace

Interval interval_from(const Json& json) {
  return {json.at("mean"), number_or_nan(json.at("half")), json.at("n")};
}

Json Planning::json() const {
  Json plans = Json::array(), costs = Json::array();
  for (const LayerPlan& p : tried)
    plans.push_back(
        {{"name", p.name}, {"kept", p.kept}, {"kl", p.kl.json()}, {"state_bytes", p.state_bytes}}
    );
  for (const double kl : alone) costs.push_back(number_or_null(kl));
  return {
      {"tokens", tokens},
      {"kl_of_each_layer_alone", costs},
      {"order", order},
      {"tried", plans},
      {"gain_over_every_4", gain.json()},
      {"chosen", chosen}};
}

Planning Planning::from(const Json& json) {
  Planning p;
  p.tokens = json.at("tokens");
  for (const Json& kl : json.at("kl_of_each_layer_alone")) p.alone.push_back(number_or_nan(kl));
  p.order = json.at("order").get<std::vector<int64_t>>();
  for (const Json& plan : json.at("tried"))
    p.tried.push_back(
        {plan.at("name"),
         plan.at("kept").get<std::vector<int64_t>>(),
         interval_from(plan.at("kl")),
         {},
         plan.at("state_bytes")}
    );
  p.gain = interval_from(json.at("gain_over_every_4"));
  p.chosen = json.at("chosen");
  return p;
}

Planner::Planner(
    Model& teacher, Model& replaced, const MixerSpec& to, const at::Tensor& windows, int64_t context
)
    : teacher_(teacher), replaced_(replaced), to_(to), context_(context) {
  const c10::NoGradGuard no_graph;
  ModelState state;
  at::Tensor x = teacher.begin(windows, state, without_state());
  for (int64_t l = 0; l < teacher.options().layers; ++l) {
    inputs_.push_back(x);
    x = step(teacher.block(l), x);
  }
  hidden_ = teacher.end(x, {}, without_state());
}

std::vector<double> Planner::kl_from(int64_t first, const Kept& kept) {
  const c10::NoGradGuard no_graph;
  at::Tensor x = inputs_[size_t(first)];
  for (int64_t l = first; l < int64_t(inputs_.size()); ++l)
    x = step((kept[size_t(l)] ? teacher_ : replaced_).block(l), x);
  const at::Tensor hidden = teacher_.end(x, {}, without_state());
  std::vector<double> list;
  for (int64_t i = 0; i < hidden.size(0); ++i)
    list.push_back(mean_kl(teacher_, hidden[i], hidden_[i]));
  return list;
}

int64_t Planner::bytes_of(const MixerSpec& spec) {
  const auto [found, missing] = bytes_.try_emplace(spec.text(), 0);
  const MixerType& type = find_mixer(spec.name);
  if (missing)
    found->second =
        state_bytes(type, teacher_.options().D, context_, type.parse(spec.settings_text()));
  return found->second;
}

LayerPlan Planner::measured(const std::string& name, std::vector<int64_t> list) {
  LayerPlan plan{name, std::move(list), {}, {}, 0};
  const ModelOptions& o = teacher_.options();
  Kept kept(size_t(o.layers), false);
  for (const int64_t l : plan.kept) kept[size_t(l)] = true;
  int64_t first = o.layers;
  for (int64_t l = 0; l < o.layers; ++l) {
    const MixerSpec own = mixer_at(o, l);
    kept[size_t(l)] = kept[size_t(l)] || !is_replaceable(own);
    if (!kept[size_t(l)]) first = std::min(first, l);
    plan.state_bytes += bytes_of(kept[size_t(l)] ? own : target_spec(to_, own));
  }
  plan.kl_of_windows =
      first < o.layers ? kl_from(first, kept) : std::vector<double>(size_t(hidden_.size(0)), 0.0);
  plan.kl = t_interval(plan.kl_of_windows);
  return plan;
}

void Planner::measure_alone(Planning& p, const Tell& tell) {
  const ModelOptions& o = teacher_.options();
  for (int64_t l = 0; l < o.layers; ++l) {
    if (tell) tell("each layer alone", size_t(l), size_t(o.layers));
    p.alone.push_back(std::numeric_limits<double>::quiet_NaN());
    if (!is_replaceable(mixer_at(o, l))) continue;
    Kept kept(size_t(o.layers), true);
    kept[size_t(l)] = false;
    p.alone.back() = mean(kl_from(l, kept));
    p.order.push_back(l);
  }
  std::stable_sort(p.order.begin(), p.order.end(), [&](int64_t a, int64_t b) {
    return p.alone[size_t(a)] > p.alone[size_t(b)];
  });
}

const LayerPlan& Planner::with_count(const Planning& p, size_t count, const Tell& tell) {
  const auto found = plans_.find(count);
  if (found != plans_.end()) return found->second;
  if (tell) tell(fmt::format("plan with {} softmax layers", count), plans_.size(), 0);
  return plans_.emplace(count, measured("plan", first_of(p.order, count))).first->second;
}

// How many layers stay softmax.
size_t Planner::count_for(const Keep& keep, const Planning& p, const Tell& tell) {
  const size_t R = p.order.size();
  if (keep.kl) {  // the fewest: the answer lies in low .. high
    size_t low = 0, high = R;
    while (low < high) {
      const size_t middle = (low + high) / 2;
      const bool enough = with_count(p, middle, tell).kl.mean <= *keep.kl;
      (enough ? high : low) = enough ? middle : middle + 1;
    }
    return low;
  }
  const double least = double(with_count(p, 0, tell).state_bytes);
  const double most = double(with_count(p, R, tell).state_bytes);
  HORNER_CHECK(
      least <= *keep.state,
      "keep: without any softmax layer the state has {} at {} tokens already",
      short_bytes(least),
      context_
  );
  return *keep.state >= most ? R : size_t(double(R) * (*keep.state - least) / (most - least));
}

Planning Planner::plan(const Keep& keep, const Tell& tell) {
  Planning p;
  p.tokens = hidden_.size(0) * hidden_.size(1);
  measure_alone(p, tell);
  const size_t R = p.order.size();
  std::vector<int64_t> rule;
  for (const int64_t l : first_of(p.order, R)) {
    if (l % kEvery == kEvery - 1) rule.push_back(l);
  }
  for (const size_t count : {size_t{0}, R / 8, rule.size(), R / 2, R}) with_count(p, count, tell);
  const size_t chosen = count_for(keep, p, tell);
  with_count(p, chosen, tell);
  const LayerPlan every = measured("every=4", rule);
  std::vector<double> gains;
  for (size_t i = 0; i < every.kl_of_windows.size(); ++i)
    gains.push_back(every.kl_of_windows[i] - plans_.at(rule.size()).kl_of_windows[i]);
  p.gain = t_interval(gains);
  for (const auto& [count, plan] : plans_) {
    if (count == chosen) p.chosen = p.tried.size();
    p.tried.push_back(plan);
  }
  p.tried.push_back(every);
  return p;
}

}  // namespace horner
