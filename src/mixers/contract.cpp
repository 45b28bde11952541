#include "mixers/contract.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <map>
#include <optional>

#include "core/check.h"
#include "ops/attention/cache.h"
#include "ops/chunks.h"

namespace horner {
namespace {

constexpr double kExact = 1e-9;  // fp64, one way of computing against another

struct Sample {
  std::shared_ptr<Mixer> mixer;
  at::Tensor x;  // (B,T,D)
  at::Tensor operator()(const at::Tensor& part, State& state, const Context& context = {}) const {
    const c10::NoGradGuard no_graph;
    return mixer->forward(part, state, context);
  }
  at::Tensor whole(const Context& context = {}) const {
    State state;
    return (*this)(x, state, context);
  }
};

Sample sample(const MixerCase& c, at::ScalarType type = at::kDouble) {
  return {sample_mixer(c, type), sample_tokens(c, type)};
}

double state_error(const State& a, const State& b) {
  if (a.parts.size() != b.parts.size()) return std::numeric_limits<double>::infinity();
  double error = 0;
  for (size_t i = 0; i < a.parts.size(); ++i) {
    error = std::max(error, relative_error(a.parts[i], b.parts[i]));
  }
  return error;
}

Measure splits(const MixerCase& c) {
  const Sample s = sample(c);
  Measure m{0, kExact};
  State after;
  const at::Tensor whole = s(s.x, after);
  for (const int64_t at : {int64_t(1), c.T / 2, c.T - 1}) {
    State state;
    const at::Tensor first = s(s.x.narrow(1, 0, at), state);
    const at::Tensor y = at::cat({first, s(s.x.narrow(1, at, c.T - at), state)}, 1);
    m.error = std::max({m.error, relative_error(y, whole), state_error(state, after)});
  }
  return m;
}

Measure steps(const MixerCase& c) {
  const Sample s = sample(c);
  State state;
  std::vector<at::Tensor> y;
  for (int64_t t = 0; t < c.T; ++t) y.push_back(s(s.x.narrow(1, t, 1), state));
  return {relative_error(at::cat(y, 1), s.whole()), kExact};
}

Measure forms_agree(const MixerCase& c) {
  const Sample s = sample(c);
  Measure m{0, kExact};
  Context context;
  context.form = forms::kRecurrent;
  const at::Tensor definition = s.whole(context);
  for (const std::string_view form : {forms::kParallel, forms::kChunked}) {
    context.form = form;
    context.chunk = 7;
    m.error = std::max(m.error, relative_error(s.whole(context), definition));
  }
  return m;
}

Measure packs(const MixerCase& c) {
  MixerCase one = c;
  one.B = 1;
  const Sample s = sample(one);
  std::vector<State> alone(3);
  State state;
  Measure m{0, kExact};
  // An empty sequence in the middle; then each goes on from its own row.
  for (const std::vector<int64_t>& starts :
       {std::vector<int64_t>{0, c.T / 3, c.T / 3, c.T}, {0, 2, c.T - 3, c.T}}) {
    Context packed;
    packed.cu_seqlens = at::tensor(starts, at::kInt).to(c.device);
    const at::Tensor y = s(s.x, state, packed);
    std::vector<at::Tensor> each;
    for (size_t j = 0; j < 3; ++j) {
      const int64_t T = starts[j + 1] - starts[j];
      if (T > 0) each.push_back(s(s.x.narrow(1, starts[j], T), alone[j]));
    }
    m.error = std::max(m.error, relative_error(y, at::cat(each, 1)));
    if (!s.mixer->causal()) break;
  }
  return m;
}

// Counts outputs before t that move, by any bit, when every token from t on changes.
Measure causal(const MixerCase& c) {
  const Sample s = sample(c);
  const int64_t t = c.T / 2;
  at::Tensor other = s.x.clone();
  other.narrow(1, t, c.T - t).mul_(-0.5).add_(0.3);
  const at::Tensor a = s.whole().narrow(1, 0, t);
  State state;
  const at::Tensor b = s(other, state).narrow(1, 0, t);
  return {(a != b).sum().item<double>(), 0};
}

// Counts outputs of one row that move when another row changes.
Measure independent(const MixerCase& c) {
  const Sample s = sample(c);
  at::Tensor other = s.x.clone();
  other.select(0, 0).mul_(-0.5);
  State state;
  return {(s.whole().select(0, 1) != s(other, state).select(0, 1)).sum().item<double>(), 0};
}

// Counts parameters that no gradient reaches, and those whose gradient is not finite.
Measure reached(const MixerCase& c) {
  const Sample s = sample(c);
  State state;
  const at::Tensor y = s.mixer->forward(s.x, state);
  const at::Tensor w = at::randn_like(y);
  const auto parameters = s.mixer->parameters();
  const auto grads = torch::autograd::grad({(y * w).sum()}, parameters, {}, {}, false, true);
  Measure m{0, 0};
  for (const at::Tensor& g : grads) {
    const bool good =
        g.defined() && at::isfinite(g).all().item<bool>() && g.abs().max().item<double>() > 0;
    m.error += good ? 0 : 1;
  }
  return m;
}

// The derivative along a random direction of the input and all parameters, against a difference.
Measure gradients(const MixerCase& c) {
  const Sample s = sample(c);
  const at::Tensor x = s.x.clone().requires_grad_(true);
  std::vector<at::Tensor> leaves = s.mixer->parameters();
  leaves.push_back(x);
  at::manual_seed(c.seed + 7);
  std::vector<at::Tensor> along;
  for (const at::Tensor& leaf : leaves) {
    along.push_back(at::randn_like(leaf) * leaf.detach().abs().mean().clamp_min(0.05));
  }
  const at::Tensor w = at::randn_like(s.x);
  const auto loss = [&] {
    State state;
    return (s.mixer->forward(x, state) * w).sum();
  };
  double exact = 0;
  const at::Tensor here = loss();
  const auto grads = torch::autograd::grad({here}, leaves, {}, {}, false, true);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i].defined()) exact += (grads[i] * along[i]).sum().item<double>();
  }
  const c10::NoGradGuard no_graph;
  const auto moved = [&](double h) {
    for (size_t i = 0; i < leaves.size(); ++i) leaves[i].add_(along[i], h);
    const double value = loss().item<double>();
    for (size_t i = 0; i < leaves.size(); ++i) leaves[i].sub_(along[i], h);
    return value;
  };
  const double scale = std::max({std::abs(exact), std::abs(here.item<double>()), 1e-3});
  Measure m{std::numeric_limits<double>::infinity(), 1e-6};
  for (const double h :
       {1e-5, 1e-7}) {  // rounding wants a large step, the kinks of a relu a small one
    const double difference = (moved(h) - moved(-h)) / (2 * h);
    m.error = std::min(m.error, std::abs(exact - difference) / scale);
  }
  return m;
}

// The map times the values is the output, and nothing reads the future.
Measure maps(const MixerCase& c) {
  const Sample s = sample(c);
  const c10::NoGradGuard no_graph;
  const Core core = s.mixer->core(s.x);
  const at::Tensor map = s.mixer->map(s.x);                     // (B,H,T,T)
  const bool scan = core.op != nullptr && !core.op->grouped();  // one head per channel
  const at::Tensor o = scan ? core.o.reshape({c.B, c.T, -1, 1}) : core.o;
  at::Tensor v = scan ? core.in.v.reshape({c.B, c.T, -1, 1}) : core.in.v;
  v = v.repeat_interleave(map.size(1) / v.size(2), 2).to(map.scalar_type());
  Measure m{relative_error(at::einsum("bhts,bshv->bthv", {map, v}), o), kExact};
  if (s.mixer->causal()) m.error = std::max(m.error, map.triu(1).abs().max().item<double>());
  return m;
}

Measure systems(const MixerCase& c) {
  const Sample s = sample(c);
  const c10::NoGradGuard no_graph;
  const at::Tensor y = rebuild(s.mixer->dsf(s.x));
  return {relative_error(y, s.mixer->core(s.x).o.reshape(y.sizes())), kExact};
}

// Counts parts whose size depends on how the sequence was cut, and those that hold more than they
// show.
Measure state_size(const MixerCase& c) {
  const Sample s = sample(c, at::kFloat);
  State whole, step;
  s(s.x, whole);
  for (int64_t t = 0; t < c.T; ++t) s(s.x.narrow(1, t, 1), step);
  Measure m{whole.bytes() == step.bytes() && whole.bytes() > 0 ? 0.0 : 1.0, 0};
  for (const at::Tensor& part : whole.parts) {
    const bool whole_storage = has_room(part) || part.storage().nbytes() == part.nbytes();
    m.error += part.size(0) == c.B && whole_storage ? 0 : 1;
  }
  return m;
}

// Counts settings that JSON loses, and outputs that it changes.
Measure survives_json(const MixerCase& c) {
  const Sample s = sample(c, at::kFloat);
  const Json said = s.mixer->options();
  at::manual_seed(c.seed);
  const auto again = c.type.make(c.D, Json::parse(said.dump()));
  again->to(c.device);
  State state;
  const c10::NoGradGuard no_graph;
  const bool same = again->options() == said && at::equal(again->forward(s.x, state), s.whole());
  return {same ? 0.0 : 1.0, 0};
}

// Root mean square of the output for a standard normal input of D = 64, at the start of training.
Measure initial_scale(const MixerCase& c) {
  MixerCase some = c;
  some.D = 64;
  const Sample s = sample(some, at::kFloat);
  const double rms = s.whole().square().mean().sqrt().item<double>();
  return {rms > 1e-7 ? rms : std::numeric_limits<double>::infinity(), 3};
}

class Autocast {
 public:
  explicit Autocast(at::DeviceType device) : device_(device) {
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
  }
  ~Autocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
};

double rms_error(const at::Tensor& y, const at::Tensor& exact) {
  const double difference = (y.to(at::kDouble) - exact).square().mean().sqrt().item<double>();
  return difference / exact.square().mean().sqrt().item<double>();
}

// Autocast may err twice as much as a mixer that holds everything in bf16.
Measure half_precision(const MixerCase& c) {
  const at::Tensor exact = sample(c).whole();
  const at::Tensor plain = sample(c, at::kBFloat16).whole();
  const Sample s = sample(c, at::kFloat);
  const Autocast on(c.device.type());
  return {rms_error(s.whole(), exact), 2 * rms_error(plain, exact) + 1e-3};
}

// As a text is read and written: half of the tokens at once, a few, then one by one.
at::Tensor decoded(const Sample& s, const Context& context = {}) {
  const int64_t T = s.x.size(1), half = T / 2;
  State state;
  std::vector<at::Tensor> y = {
      s(s.x.narrow(1, 0, half), state, context), s(s.x.narrow(1, half, 3), state, context)};
  for (int64_t t = half + 3; t < T; ++t) y.push_back(s(s.x.narrow(1, t, 1), state, context));
  return at::cat(y, 1);
}

// On a GPU also at a width that kernels take.
std::vector<MixerCase> widths(const MixerCase& c) {
  std::vector<MixerCase> all = {c};
  if (c.device.is_cuda()) {
    all.push_back(c);
    all.back().D = 128;
    all.back().T = 67;
  }
  return all;
}

bool has_op(const MixerCase& c);

// The error in the same pieces of the plain form that rounds as tensor cores do, which read a state in bf16. (Large where
// features of q and k nearly cancel: 2Mamba, D = 16.)
double rounded_error(const MixerCase& c, const at::Tensor& exact) {
  Context context;
  context.form = "chunked";
  const Autocast on(c.device.type());
  const RoundedProducts low;
  return rms_error(decoded(sample(c, at::kFloat), context), exact);
}

// May err twice as much as `plain`, the whole text at once, and a little. The worst of all widths.
Measure decoding_error(const MixerCase& given, bool autocast, at::ScalarType plain, double little) {
  Measure worst{0, 1};
  for (const MixerCase& c : widths(given)) {
    const at::Tensor exact = sample(c).whole();
    double known = rms_error(sample(c, plain).whole(), exact);
    if (autocast && c.device.is_cuda() && has_op(c))
      known = std::max(known, rounded_error(c, exact));
    const double allowed = 2 * known + little;
    const Sample s = sample(c, at::kFloat);
    std::optional<Autocast> on;
    if (autocast) on.emplace(c.device.type());
    const double error = rms_error(decoded(s), exact);
    if (!(error / allowed < worst.error / worst.bound)) worst = {error, allowed};
  }
  return worst;
}
Measure decodes_fp32(const MixerCase& c) { return decoding_error(c, false, at::kFloat, 1e-4); }
Measure decodes_bf16(const MixerCase& c) { return decoding_error(c, true, at::kBFloat16, 1e-3); }

Measure same_bits(const MixerCase& c) {
  return {at::equal(sample(c, at::kFloat).whole(), sample(c, at::kFloat).whole()) ? 0.0 : 1.0, 0};
}

// Counts wrong settings and inputs that are not refused in one line with the mixer's name or the
// setting's.
Measure refuses(const MixerCase& c) {
  Measure m{0, 0};
  const auto refused = [&](auto&& f) {
    try {
      f();
    } catch (const UsageError& error) {
      if (std::string_view(error.what()).starts_with(fmt::format("[{}] ", c.type.name))) return;
    } catch (const std::exception&) {
    }
    m.error += 1;
  };
  for (const std::string& text : c.type.refused) {
    refused([&] { c.type.make(c.D, c.type.parse(text)); });
  }
  const Sample s = sample(c, at::kFloat);
  State state;
  refused([&] { s(s.x.narrow(2, 0, c.D - 1), state); });
  refused([&] { s(s.x.narrow(1, 0, 0), state); });
  refused([&] { s(s.x.select(1, 0), state); });
  return m;
}

struct Traits {
  bool causal, differentiable, has_op;
};

// Measured once for each mixer and its options: the tests ask for every property.
const Traits& traits(const MixerCase& c) {
  static thread_local std::map<std::string, Traits> known;
  const auto [found, missing] =
      known.try_emplace(fmt::format("{}:{} D={}", c.type.name, c.options, c.D));
  if (missing) {
    const c10::NoGradGuard no_graph;
    const auto mixer = c.type.make(c.D, c.type.parse(c.options));
    const bool has_op = mixer->core(at::zeros({1, 2, c.D})).op != nullptr;
    found->second = {mixer->causal(), !mixer->stops_gradients(), has_op};
  }
  return found->second;
}

bool always(const MixerCase&) { return true; }
bool has_state(const MixerCase& c) { return traits(c).causal; }
bool is_differentiable(const MixerCase& c) { return traits(c).differentiable; }
bool has_op(const MixerCase& c) { return traits(c).has_op; }

}  // namespace

const std::vector<MixerProperty>& mixer_contract() {
  static const std::vector<MixerProperty> list = {
      {"splits anywhere", "whole = two parts with the carried state", splits, has_state},
      {"steps", "whole = one token at a time", steps, has_state},
      {"forms agree", "recurrent = parallel = chunked", forms_agree, has_op},
      {"packs", "a packed batch = its sequences alone", packs, always},
      {"causal", "the future moves no bit of the past", causal, has_state},
      {"independent", "batch rows move no bit of each other", independent, always},
      {"reached", "a gradient reaches every parameter", reached, always},
      {"gradients",
       "derivatives = differences, of input and parameters",
       gradients,
       is_differentiable},
      {"map", "the map times the values is the output", maps, always},
      {"dsf", "Lambda, B, C, D rebuild the output", systems, has_state},
      {"state size", "the state is as large however it was made", state_size, has_state},
      {"json", "settings survive JSON", survives_json, always},
      {"initial scale", "rms of the output at the start, D = 64", initial_scale, always},
      {"same bits", "the same seed gives the same bits", same_bits, always},
      {"bf16 error", "autocast at most twice all in bf16", half_precision, always},
      {"decodes, fp32",
       "a text read and written in fp32 = all of it in fp64",
       decodes_fp32,
       has_state},
      {"decodes, bf16", "the same under autocast", decodes_bf16, has_state},
      {"refuses", "what is wrong is refused in one line", refuses, always},
  };
  return list;
}

std::shared_ptr<Mixer> sample_mixer(const MixerCase& c, at::ScalarType type) {
  at::manual_seed(c.seed);
  auto mixer = c.type.make(c.D, c.type.parse(c.options));
  mixer->to(c.device, type);
  return mixer;
}

at::Tensor sample_tokens(const MixerCase& c, at::ScalarType type) {
  at::Generator generator = at::detail::createCPUGenerator(c.seed + 1);
  return at::randn({c.B, c.T, c.D}, generator, at::kFloat).to(c.device, type);
}

}  // namespace horner
