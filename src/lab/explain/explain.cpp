#include "lab/explain/explain.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <limits>

#include "core/check.h"
#include "mixers/mixer.h"

namespace horner {
namespace {

std::vector<double> numbers(const at::Tensor& x) {
  const at::Tensor flat = x.to(at::kCPU, at::kDouble).contiguous().view({-1});
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

void measure_sizes(Explanation& e, const MixerType& type, int64_t D) {
  for (const int64_t T : {1, 64, 256, 1024, 4096}) {
    e.sizes.push_back({T, state_bytes(type, D, T, e.settings), 2 * T * D * int64_t(sizeof(float))});
  }
  const bool grows = e.sizes.back().bytes > e.sizes[1].bytes;
  if (!grows) e.crossover = e.sizes[0].bytes / (2 * D * int64_t(sizeof(float))) + 1;
}

std::string meaning(const Op* op, double low, double high) {
  if (op != nullptr && op->keeps_tokens)
    return "keeps every visible token; Lambda only renormalises";
  if (low < -1e-9)
    return "negative eigenvalues: a token can turn the sign of a state, as parity needs";
  const std::string parity = "no eigenvalue below 0: one layer cannot do parity without a rotation";
  return high > 1 + 1e-9 ? parity + "; some above 1: bounded only through its normaliser" : parity;
}

// Eigenvalues of every Lambda (B,T,H,F,F); only once where the stride is 0, that is where all are the same matrix.
at::Tensor eigenvalues(const at::Tensor& Lambda) {
  at::Tensor distinct = Lambda;
  for (const int64_t d : {0, 1, 2}) {
    if (Lambda.stride(d) == 0) distinct = distinct.narrow(d, 0, 1);
  }
  return at::real(at::linalg_eigvals(distinct)).expand(Lambda.sizes().slice(0, 4));
}

void measure_system(Explanation& e, const Op* op, const System& s) {
  const at::Tensor values = s.Lambda.dim() == 5 ? eigenvalues(s.Lambda) : s.Lambda;
  const at::Tensor later =
      values.narrow(1, 1, values.size(1) - 1).flatten();  // Lambda_1 meets h_0 = 0
  e.F = s.C.size(3);
  e.transition = numbers(at::quantile(later, at::tensor({0., .25, .5, .75, 1.}, at::kDouble)));
  e.spectrum = numbers(at::quantile(later, at::linspace(0, 1, 65, at::kDouble)));
  e.growing = (later > 1 + 1e-9).to(at::kDouble).mean().item<double>();
  e.half_life = half_life(e.transition[2]);
  for (const auto& [name, x] :
       {std::pair{"Lambda", s.Lambda.dim() == 5 ? values : s.Lambda}, {"B", s.B}, {"C", s.C}}) {
    const at::Tensor head = x[0].select(1, 0);  // (T,F); B of softmax is the same for all heads
    const at::Tensor kept = head.narrow(1, 0, std::min<int64_t>(64, head.size(1)));
    e.matrices.push_back({name, kept.size(0), kept.size(1), numbers(kept)});
  }
  e.consequence = meaning(op, e.transition[0], e.transition[4]);
}

constexpr int kOrders = 99;

// The probe of arXiv:2507.23632: which orders of the exponential the scores need.
void measure_orders(Explanation& e, const Core& core) {
  if (core.op == nullptr || !core.op->series) return;
  const int64_t r = core.in.q.size(2) / core.in.k.size(2);
  const double scale = core.options.scale.value_or(1 / std::sqrt(double(core.in.q.size(3))));
  const at::Tensor x =
      scale * at::einsum("bthk,bshk->bhts", {core.in.q, core.in.k.repeat_interleave(r, 2)});
  const at::Tensor seen = x.masked_select(at::ones_like(x, at::kBool).tril());
  double total = 0;
  const at::Tensor logs = seen.abs().clamp_min(1e-300).log();
  for (int n = 0; n <= kOrders; ++n) {  // |x|^n / n! = e^{n ln |x| - ln n!}
    e.orders.push_back((logs * n - std::lgamma(n + 1.0)).exp().mean().item<double>());
    total += e.orders.back();
  }
  for (double& share : e.orders) share /= total;
  while (e.orders.size() > 11 && e.orders.back() < 1e-12) e.orders.pop_back();
}

}  // namespace

double half_life(double eigenvalue) {
  if (eigenvalue <= 0) return 0;
  return eigenvalue < 1 ? std::log(2.0) / -std::log(eigenvalue)
                        : std::numeric_limits<double>::infinity();
}

Explanation explain_mixer(Mixer& mixer, const MixerType& type, const at::Tensor& x) {
  Explanation e;
  e.mixer = type.name;
  e.paper = type.paper;
  e.settings = mixer.options();
  e.equation = mixer.equation(type.equation);
  e.voids = mixer.voids();
  for (const auto& parameter : mixer.named_parameters()) {
    e.parameters.push_back({parameter.key(), parameter.value().sizes().vec()});
    e.parameter_count += parameter.value().numel();
  }
  if (mixer.causal()) measure_sizes(e, type, mixer.width());

  const c10::NoGradGuard no_graph;
  mixer.to(at::kDouble);
  const Core core = mixer.core(x.to(at::kDouble));
  const at::Tensor map = map_of(core).squeeze(0);  // (H,T,T)
  if (!at::isfinite(map).all().item<bool>())
    throw RunError(
        "[{}] the map is not finite: a weight is not, or the settings lead out of the numbers",
        type.name
    );
  e.op = core.name();
  e.T = x.size(1);
  if (mixer.causal()) measure_system(e, core.op, system_of(core));
  measure_orders(e, core);
  e.confusion = confusion(mixer, x.to(at::kDouble));
  e.map = numbers(map.select(0, 0));
  e.row_sum_low = map.sum(-1).min().item<double>();
  e.row_sum_high = map.sum(-1).max().item<double>();
  e.negative_mass = (-map).clamp_min(0).sum().item<double>() / map.abs().sum().item<double>();
  return e;
}

Explanation explain(const std::string& mixer, const ExplainOptions& given) {
  ExplainOptions o = given;
  if (o.T == 0) o.T = 64;
  HORNER_CHECK(o.T >= 2 && o.T <= 1024, "T must be in 2 .. 1024, got {}", o.T);
  HORNER_CHECK(o.D >= 1 && o.D <= 16384, "D must be in 1 .. 16384, got {}", o.D);
  at::manual_seed(uint64_t(o.seed));
  if (!o.checkpoint.empty()) return explain_checkpoint(o);
  const MixerSpec spec = MixerSpec::parse(mixer);
  Explanation e = explain_mixer(
      *make_mixer(spec, o.D), find_mixer(spec.name), at::randn({1, o.T, o.D}, at::kDouble)
  );
  e.mixer = spec.text();  // with the settings that were asked for
  return e;
}

Json Explanation::json() const {
  Json rows = Json::array(), held = Json::array();
  for (const Size& s : sizes)
    rows.push_back({{"T", s.T}, {"state_bytes", s.bytes}, {"cache_bytes", s.cache}});
  Json system = Json::object();
  for (const Matrix& m : matrices)
    system[m.name] = {{"rows", m.rows}, {"columns", m.columns}, {"values", m.values}};
  for (const Parameter& p : parameters) held.push_back({{"name", p.name}, {"shape", p.shape}});
  const auto finite = [](double x) { return std::isfinite(x) ? Json(x) : Json("inf"); };
  return {
      {"mixer", mixer},
      {"equation", equation},
      {"paper", paper},
      {"settings", settings},
      {"void", voids},
      {"parameters", held},
      {"parameter_count", parameter_count},
      {"state", rows},
      {"crossover", crossover},
      {"op", op},
      {"F", F},
      {"transition_quantiles", transition},
      {"spectrum", spectrum},
      {"transition_above_one", growing},
      {"half_life", finite(half_life)},
      {"consequence", consequence},
      {"dsf", system},
      {"order_shares", orders},
      {"confusion", confusion.json()},
      {"row_sum", {row_sum_low, row_sum_high}},
      {"negative_mass", negative_mass},
      {"map", {{"T", T}, {"values", map}}}};
}

}  // namespace horner
