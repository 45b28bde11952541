#include "lab/convert/certificate.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "core/number.h"
#include "lab/convert/bound.h"

namespace horner {
namespace {

constexpr int64_t kWindow = 64, kSinks = 4;  // of the tail where the mixer has no window

// The bound of one head over all rows of the batch, beside its error (B,T).
void add_bound(
    HeadError& e,
    const std::optional<Approximation>& known,
    const Core& core,
    const at::Tensor& error
) {
  Approximation a;  // without a bound only the tail is measured
  a.drops = true;
  a.window = kWindow;
  a.sinks = kSinks;
  if (known) a = *known;
  const double rows = double(error.size(0));
  for (int64_t b = 0; b < error.size(0); ++b) {
    const HeadBound bound = bound_of(a, core, b, e.head);
    const at::Tensor own = error[b].to(at::kDouble);
    e.tail += bound.tail.mean().item<double>() / rows;
    e.error += (own / bound.most).mean().item<double>() / rows;
    if (!known) continue;
    e.bound = e.bound.value_or(0) + (bound.bound / bound.most).mean().item<double>() / rows;
    e.vacuous += (bound.bound >= bound.most).to(at::kDouble).mean().item<double>() / rows;
    e.B = std::max(e.B, bound.B);
    e.beyond = std::max(e.beyond, (own - bound.bound).max().item<double>());
  }
}

Json json_of(const TextScore& t) {
  Json json = {
      {"tokens", t.tokens},
      {"nats", t.nats.json()},
      {"perplexity", t.perplexity()},
      {"teacher_nats", t.against->nats},
      {"kl", t.against->kl.json()},
      {"same_top", t.against->same_top},
      {"nats_more_than_teacher", t.against->difference.json()}};
  for (const PositionScore& p : t.by_position)
    json["by_position"].push_back(
        {{"from", p.from}, {"to", p.to}, {"tokens", p.tokens}, {"nats", p.nats}, {"kl", p.kl}}
    );
  return json;
}

}  // namespace

std::vector<HeadError> head_errors(
    Model& teacher, Model& student, const Kept& kept, const at::Tensor& input
) {
  const c10::NoGradGuard no_graph;
  std::vector<HeadError> list;
  each_mixer_input(teacher, input, [&](int64_t layer, const at::Tensor& x) {
    if (kept[size_t(layer)]) return;
    Mixer &own = teacher.block(layer).mixer(), &other = student.block(layer).mixer();
    const Core core = own.core(x);
    const int64_t H = core.in.q.size(2);
    const at::Tensor o = heads_of(own, x, H), approximate = heads_of(other, x, H);
    const at::Tensor error = (approximate - o).norm(2, -1);  // (B,T,H)
    const at::Tensor length = o.norm(2, -1);
    const auto known = approximation_of(mixer_at(student.options(), layer), other);
    for (int64_t h = 0; h < H; ++h) {
      HeadError e;
      e.layer = layer;
      e.head = h;
      e.relative =
          error.select(2, h).norm().item<double>() / length.select(2, h).norm().item<double>();
      add_bound(e, known, core, error.select(2, h));
      list.push_back(e);
    }
  });
  return list;
}

Json HeadError::json() const {
  Json json = {
      {"layer", layer},
      {"head", head},
      {"relative_error", relative},
      {"tail", tail},
      {"error", error}};
  if (!bound) return json;
  json["bound"] = *bound;
  json["vacuous"] = vacuous;
  json["B"] = B;
  return json;
}

ConvertStep ConvertStep::of(const std::string& name, const TextScore& score) {
  ConvertStep step;
  step.name = name;
  step.kl = score.against->kl;
  step.perplexity = score.perplexity();
  step.change = std::expm1(score.nats.mean - score.against->nats);
  step.same_top = score.against->same_top;
  return step;
}

Json ConvertStep::json() const {
  Json points = Json::array();
  for (const auto& [at, loss] : curve) points.push_back({at, number_or_null(loss)});
  return {
      {"name", name},
      {"tokens", tokens},
      {"seconds", seconds},
      {"kl", kl.json()},
      {"perplexity", perplexity},
      {"perplexity_change", change},
      {"same_top", same_top},
      {"curve", points}};
}

ConvertStep ConvertStep::from(const Json& json) {
  ConvertStep step;
  step.name = json.at("name");
  step.tokens = json.at("tokens");
  step.seconds = json.at("seconds");
  step.kl = interval_from(json.at("kl"));
  step.perplexity = json.at("perplexity");
  step.change = json.at("perplexity_change");
  step.same_top = json.at("same_top");
  for (const Json& point : json.at("curve"))
    step.curve.emplace_back(point.at(0).get<int64_t>(), number_or_nan(point.at(1)));
  return step;
}

int64_t Certificate::training_tokens() const {
  int64_t sum = 0;
  for (const ConvertStep& step : steps) sum += step.tokens;
  return sum;
}

double Certificate::perplexity_change() const {
  return std::expm1(score.nats.mean - score.against->nats);
}

Json Certificate::json() const {
  Json errors = Json::array(), sizes = Json::array(), each = Json::array();
  for (const ConvertStep& step : steps) each.push_back(step.json());
  for (const HeadError& e : heads) errors.push_back(e.json());
  for (const StateSize& s : states)
    sizes.push_back({{"T", s.T}, {"bytes", s.student}, {"teacher_bytes", s.teacher}});
  Json json = {
      {"teacher", teacher},
      {"to", to},
      {"keep", keep},
      {"softmax_layers", kept},
      {"layers", layers},
      {"text", text},
      {"test", test},
      {"calibration_tokens", calibration_tokens},
      {"training_tokens", training_tokens()},
      {"seed", seed},
      {"device", device},
      {"precision", precision},
      {"context", context},
      {"perplexity_change", perplexity_change()},
      {"steps", each},
      {"score", json_of(score)}};
  if (window_only) json["window_only"] = json_of(*window_only);
  if (state_only) json["state_only"] = json_of(*state_only);
  if (generated) json["generated"] = generated->json();
  for (const NeedleRecall& n : needles) json["needle"].push_back(n.json());
  json["state"] = sizes;
  if (planning) json["planning"] = planning->json();
  json["heads"] = errors;
  json["seconds"] = seconds;
  return json;
}

}  // namespace horner
