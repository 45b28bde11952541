#include "model/model.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "core/check.h"
#include "core/initial.h"
#include "core/memory.h"
#include "model/recompute.h"
#include "nn/head_loss/head_loss.h"
#include "nn/heads.h"
#include "nn/initial_values.h"
#include "nn/linears.h"
#include "nn/parameter.h"
#include "nn/part.h"

namespace horner {
namespace {

// The place of each token in its own sequence of a packed batch.   (n+1) -> (1,T)
at::Tensor packed_places(const at::Tensor& cu_seqlens, const at::Tensor& x) {
  const at::Tensor t = at::arange(x.size(1), x.device());
  const at::Tensor starts = cu_seqlens.to(x.device(), at::kLong);
  const at::Tensor sequence = at::searchsorted(starts, t, false, true) - 1;
  return (t - starts.index_select(0, sequence)).unsqueeze(0);
}

at::Tensor drop(const at::Tensor& x, double p) { return p > 0 ? at::dropout(x, p, true) : x; }

int64_t inner_width(const ModelOptions& o) {
  if (o.mlp_dim > 0) return o.mlp_dim;
  return o.mlp.starts_with("gelu") ? 4 * o.D : (8 * o.D / 3 + 63) / 64 * 64;
}

// code(t)_2i = sin(t / 10000^{2i/D}), code(t)_2i+1 = cos of the same.   (T,D)
at::Tensor position_codes(int64_t T, int64_t D, const at::TensorOptions& options) {
  const at::Tensor t = at::arange(T, options).unsqueeze(1);
  const at::Tensor i = at::arange((D + 1) / 2, options);
  const at::Tensor angle = t * (i * (-2 * std::log(10000.0) / double(D))).exp();
  return at::stack({angle.sin(), angle.cos()}, -1).flatten(1).narrow(1, 0, D);
}

// Whether the head predicts a token for every position.
bool is_language(const ModelOptions& o) { return o.classes == 0 && o.output != "number"; }

void check_options(const ModelOptions& o) {
  for (const auto& [name, value] : {std::pair{"layers", o.layers}, {"D", o.D}}) {
    check_at_least("model", name, double(value), 1);
  }
  for (const auto& [name, value] :
       {std::pair{"classes", o.classes},
        {"mlp_dim", o.mlp_dim},
        {"positions", o.positions},
        {"segments", o.segments},
        {"features", o.features}}) {
    check_at_least("model", name, double(value), 0);
  }
  if (o.features == 0 || is_language(o))
    check_at_least("model", "vocabulary", double(o.vocabulary), 1);
  check_at_least("model", "logit_cap", o.logit_cap, 0);
  check_at_least("model", "norm_eps", o.norm_eps, 0);
  HORNER_CHECK(
      !o.norm_bias || o.norm == "layer", "[model] norm_bias belongs to norm = layer, not {}", o.norm
  );
  HORNER_CHECK(!o.mlp_bias || o.mlp != "none", "[model] mlp_bias needs an mlp");
  HORNER_CHECK(
      o.segments == 0 || o.features == 0, "[model] segments belong to tokens, not to features"
  );
  HORNER_CHECK(
      o.dropout >= 0 && o.dropout < 1, "[model] dropout must lie in [0,1), got {}", o.dropout
  );
  HORNER_CHECK(!o.pattern.empty(), "[model] pattern must name at least one mixer");
  HORNER_CHECK(
      o.classes == 0 || o.output == "tokens", "[model] a classifier takes no output = {}", o.output
  );
  HORNER_CHECK(
      !o.tied || (is_language(o) && o.features == 0 && o.output == "tokens"),
      "[model] tied is for a language model"
  );
}

// xlstm-jax: small N(0, 2/(5D)) where x is read, 2/(L sqrt D) where it is written, output gates 0.
void begin_as_xlstm(
    const ModelOptions& o, const std::string& name, const at::Tensor& x, bool writes
) {
  if (x.dim() != 2 || name.find("input_gate") != std::string::npos ||
      name.find("forget_gate") != std::string::npos || name.ends_with("conv_weight"))
    return;
  if (name.ends_with("output_gate_weight")) {
    x.zero_();
  } else {
    x.normal_(
        0,
        writes ? 2 / (double(o.layers) * std::sqrt(double(o.D))) : std::sqrt(2 / (5 * double(o.D)))
    );
  }
}

// Initial weights other than the default N(0, 0.02).
void begin_as(const ModelOptions& o, torch::nn::Module& model) {
  const c10::NoGradGuard no_graph;
  for (auto& entry : model.named_parameters()) {
    const std::string& name = entry.key();
    const at::Tensor& x = entry.value();
    const bool writes = name.ends_with("mixer.out_weight") || name.ends_with("mlp_down_weight");
    const Initial own(name);
    const bool angles = name.find(".angle_") != std::string::npos;  // start as their paper says
    if (angles) continue;
    if (o.init == "gpt2") {
      if (writes) x.mul_(1 / std::sqrt(2 * double(o.layers)));
    } else if (o.init == "xlstm") {
      begin_as_xlstm(o, name, x, writes);
    } else if (name == "embedding" || name == "positions" || name == "segments") {
      if (o.init == "torch") x.normal_();
    } else if (x.dim() == 2 && name.ends_with("_weight")) {
      const double bound = 1 / std::sqrt(double(x.size(1)));
      x.uniform_(-bound, bound);
    }
  }
}

}  // namespace

MixerSpec mixer_at(const ModelOptions& o, int64_t layer) {
  MixerSpec spec = MixerSpec::parse(o.pattern[size_t(layer) % o.pattern.size()]);
  // A mixer whose start depends on the depth of the model is told it.
  if (has_setting(find_mixer(spec.name), "layers") && !spec.find("layers"))
    spec.settings.push_back({"layers", std::to_string(o.layers)});
  return spec;
}

Block::Block(const MixerSpec& mixer, const ModelOptions& o)
    : dropout_(o.dropout_at == "all" ? o.dropout : 0),
      norm_after_(o.norm_place == "after"),
      tanh_(o.mlp == "gelu_tanh") {
  {
    const Initial own("mixer");
    mixer_ = register_module("mixer", make_mixer(mixer, o.D));
  }
  norm_ = head_norm(*this, "norm", o.norm, o.norm_eps, {o.D}, o.norm_bias);
  if (o.mlp == "none") return;
  const int64_t E = inner_width(o);
  mlp_norm_ = head_norm(*this, "mlp_norm", o.norm, o.norm_eps, {o.D}, o.norm_bias);
  if (o.mlp == "swiglu") gate_ = linear(*this, "mlp_gate", o.D, E, o.mlp_bias);
  up_ = linear(*this, "mlp_up", o.D, E, o.mlp_bias);
  down_ = linear(*this, "mlp_down", E, o.D, o.mlp_bias);
}

at::Tensor Block::mlp(const at::Tensor& x) const {
  const Part part(parts::kMlp);
  if (!gate_.weight.defined()) return down_(at::gelu(up_(x), tanh_ ? "tanh" : "none"));
  const auto [gate, up] = linears(x, gate_, up_);
  return down_(swiglu(gate, up));
}

at::Tensor Block::forward(
    at::Tensor& x, const at::Tensor& delta, State& state, const Context& context
) {
  const Part part(parts::kResidual);
  const double p = is_training() ? dropout_ : 0;
  if (norm_after_) {
    x = norm_(x + drop(mixer_->forward(x, state, context), p));
    if (down_.weight.defined()) x = mlp_norm_(x + drop(mlp(x), p));
    return {};
  }
  const auto [before, in] = norm_.add(x, delta);
  const at::Tensor mixed = drop(mixer_->forward(in, state, context), p);
  x = before;
  if (!down_.weight.defined()) return mixed;
  const auto [between, y] = mlp_norm_.add(before, mixed);
  x = between;
  return drop(mlp(y), p);
}

at::Tensor Block::forward(const at::Tensor& x, State& state, const Context& context) {
  at::Tensor sum = x;
  const at::Tensor delta = forward(sum, {}, state, context);
  const Part part(parts::kResidual);
  return delta.defined() ? sum + delta : sum;
}

Model::Model(const ModelOptions& o, bool with_blocks) : o_(o) {
  check_options(o);
  if (o.features > 0) {
    input_ = linear(*this, "input", o.features, o.D, true);
  } else {
    const Initial own("embedding");
    embedding_ = parameter(*this, "embedding", [&] { return normal({o.vocabulary, o.D}); });
  }
  if (o.positions > 0) {
    const Initial own("positions");
    positions_ = parameter(*this, "positions", [&] { return normal({o.positions, o.D}); });
  }
  if (o.segments > 0) {
    const Initial own("segments");
    segments_ = parameter(*this, "segments", [&] { return normal({o.segments, o.D}); });
  }
  if (o.embedding_norm)
    embedding_norm_ = head_norm(*this, "embedding_norm", o.norm, o.norm_eps, {o.D}, o.norm_bias);
  for (int64_t l = 0; with_blocks && l < o.layers; ++l) {
    const std::string name = fmt::format("layer_{}", l);
    const Initial own(name);
    blocks_.push_back(register_module(name, std::make_shared<Block>(mixer_at(o, l), o)));
  }
  if (o.norm_place == "before")
    norm_ = head_norm(*this, "norm", o.norm, o.norm_eps, {o.D}, o.norm_bias);
  if (o.output == "rebuild") rebuild_ = linear(*this, "rebuild", o.D, o.D, true);
  if (o.tied) {
    head_.weight = embedding_;
  } else if (o.output != "hidden") {
    const int64_t width = o.classes > 0 ? o.classes : o.output == "number" ? 1 : o.vocabulary;
    head_ = linear(*this, "head", o.D, width, !is_language(o));
  }
  if (o.init != "normal") begin_as(o, *this);
}

bool Model::causal() const {
  for (const auto& block : blocks_) {
    if (!block->mixer().causal()) return false;
  }
  return true;
}

int64_t Model::parameters_count() const {
  int64_t count = 0;
  for (const at::Tensor& p : parameters()) count += p.numel();
  return count;
}

at::Tensor Model::embed(const at::Tensor& input, ModelState& state, const Context& context) const {
  const Part part(parts::kEmbedding);
  at::Tensor x = o_.features > 0 ? input_(input.to(input_.weight.scalar_type()))
                                 : at::embedding(embedding_, input);
  const bool sums_wider = x.scalar_type() == at::kBFloat16 && !x.is_meta() &&
                          at::autocast::is_autocast_enabled(x.device().type());
  if (sums_wider) x = x.to(at::kFloat);  // only products are bf16 then
  if (positions_.defined()) x = x + at::embedding(positions_, places(input, state, context));
  if (context.segments.defined()) {
    HORNER_CHECK(
        segments_.defined() && context.segments.sizes() == input.sizes(),
        "[model] segments must be {} of a model that has segments, got {}",
        c10::str(input.sizes()),
        c10::str(context.segments.sizes())
    );
    x = x + at::embedding(segments_, context.segments);
  } else if (segments_.defined()) {
    x = x + segments_.select(0, 0);
  }
  return o_.embedding_norm ? embedding_norm_(x) : x;
}

// The place of each token for the learned positions; the state counts them.   (B,T) or (1,T)
at::Tensor Model::places(const at::Tensor& input, ModelState& state, const Context& context) const {
  const int64_t T = input.size(1);
  const bool packed = context.cu_seqlens.defined();
  HORNER_CHECK(
      !packed || !state.seen.defined(),
      "[model] learned positions: a packed batch cannot go on from a state"
  );
  const bool fresh = !packed && !state.seen.defined();
  at::Tensor place = packed ? packed_places(context.cu_seqlens, input)
                            : at::arange(T, input.device()).unsqueeze(0);
  if (state.seen.defined()) place = place + state.seen.unsqueeze(1);
  if (!fresh && place.is_cuda() && !c10::GradMode::is_enabled()) {
    // A step that is recorded cannot wait. Who decodes counts the tokens; rows without a text may count on.
    place = place.clamp_max(o_.positions - 1);
    state.seen = place.select(1, T - 1).expand({input.size(0)}) + 1;
    return place;
  }
  HORNER_CHECK(  // without a state T - 1 is enough, and we need not wait for a GPU
      (!fresh && !has_memory(place)) ||
          (fresh ? T - 1 : place.max().item<int64_t>()) < o_.positions,
      "[model] a sequence is longer than its {} learned positions",
      o_.positions
  );
  if (!packed && context.keep_state)
    state.seen = place.select(1, T - 1).expand({input.size(0)}) + 1;
  return place;
}

at::Tensor Model::run_blocks(at::Tensor x, ModelState& state, const Context& given) {
  Context context = given;
  if (!state.empty() && !c10::GradMode::is_enabled() && !given.cu_seqlens.defined())
    context.rotations = std::make_shared<Rotations>();
  state.layers.resize(blocks_.size());
  at::Tensor delta;  // to be added to x
  for (size_t l = 0; l < blocks_.size(); ++l) {
    if (watch_ != nullptr) watch_->enter(int64_t(l), x, delta, state.layers[l]);
    if (context.recompute && (x.requires_grad() || delta.defined())) {
      x = recompute(*blocks_[l], delta.defined() ? x + delta : x, context);
      delta = at::Tensor();
    } else {
      delta = blocks_[l]->forward(x, delta, state.layers[l], context);
    }
    if (watch_ != nullptr) watch_->leave(int64_t(l), x, delta, state.layers[l]);
  }
  return normed(x, delta);
}

at::Tensor Model::normed(const at::Tensor& x, const at::Tensor& delta) const {
  if (o_.norm_place == "after") return x;
  if (o_.classes == 0 && o_.output == "tokens") return norm_.add(x, delta).norm;
  return norm_(delta.defined() ? x + delta : x);  // in full precision: it is summed over tokens
}

// What the head reads of a whole sequence.   (B,T,D) -> (B,D), or (B,T,D) if the head rebuilds it
at::Tensor Model::pooled(const at::Tensor& x, const Context& context) const {
  const int64_t T = x.size(1);
  const bool padded = context.lengths.defined();
  const at::Tensor lengths = padded ? context.lengths.to(x.device(), at::kLong) : at::Tensor();
  if (o_.classes > 0 && o_.pool == "mean") {
    if (!padded) return x.mean(1);
    const at::Tensor inside = at::arange(T, x.device()) < lengths.unsqueeze(1);  // (B,T)
    const at::Tensor sum = at::where(inside.unsqueeze(-1), x, 0.0).sum(1);
    return sum / lengths.unsqueeze(1).to(x.scalar_type());
  }
  const at::Tensor last =
      padded ? x.gather(1, (lengths - 1).view({-1, 1, 1}).expand({-1, 1, x.size(2)})).squeeze(1)
             : x.select(1, T - 1);
  if (o_.classes > 0) return last;
  const at::Tensor z = last.unsqueeze(1) + position_codes(T, o_.D, x.options());
  return at::gelu(rebuild_(z));
}

at::Tensor Model::begin(const at::Tensor& input, ModelState& state, const Context& given) const {
  HORNER_CHECK(
      o_.features > 0
          ? input.dim() == 3 && input.size(2) == o_.features && input.is_floating_point()
          : input.dim() == 2 && at::isIntegralType(input.scalar_type(), false),
      "[model] the input must be {}, got {} {}",
      o_.features > 0 ? fmt::format("(B,T,{}) numbers", o_.features) : "(B,T) whole numbers",
      c10::str(input.scalar_type()),
      c10::str(input.sizes())
  );
  HORNER_CHECK(
      !given.cu_seqlens.defined() || !(reads_whole() || given.lengths.defined()),
      "[model] a {} takes one sequence per row",
      given.lengths.defined() ? "batch with lengths" : "head that reads whole sequences"
  );
  const at::Tensor x = embed(input, state, given);
  return is_training() ? drop(x, o_.dropout) : x;
}

at::Tensor Model::end(const at::Tensor& x, const at::Tensor& delta, const Context& context) const {
  const at::Tensor y = normed(x, delta);
  return reads_whole() ? pooled(y, context) : y;
}

at::Tensor Model::hidden(const at::Tensor& input, ModelState& state, const Context& given) {
  at::Tensor x = begin(input, state, given);
  if (given.lengths.defined() &&
      !causal()) {  // without padding, since both directions would see it
    const int64_t B = x.size(0), T = x.size(1), D = x.size(2);
    const at::Tensor lengths = given.lengths.to(x.device(), at::kLong);
    const at::Tensor inside =
        (at::arange(T, x.device()) < lengths.unsqueeze(1)).flatten().nonzero().squeeze(1);
    Context packed = given;
    packed.lengths = at::Tensor();
    packed.cu_seqlens =
        at::constant_pad_nd(lengths.cumsum(0), {1, 0}).to(at::kCPU);  // cut on the CPU
    const at::Tensor y =
        run_blocks(x.flatten(0, 1).index_select(0, inside).unsqueeze(0), state, packed);
    x = at::zeros({B * T, D}, y.options()).index_copy(0, inside, y.squeeze(0)).view({B, T, D});
  } else {
    x = run_blocks(x, state, given);
  }
  return reads_whole() ? pooled(x, given) : x;
}

at::Tensor Model::logits(const at::Tensor& hidden) const {
  if (o_.output == "hidden") return hidden;
  const at::Tensor logits = head_(hidden);
  return o_.logit_cap > 0 ? o_.logit_cap * (logits / o_.logit_cap).tanh() : logits;
}

at::Tensor Model::loss(const at::Tensor& hidden, const at::Tensor& targets) const {
  HORNER_CHECK(head_.weight.defined(), "[model] output = hidden has no head, so it has no loss");
  HORNER_CHECK(
      hidden.dim() == 2 && targets.dim() == 1 && hidden.size(0) == targets.size(0),
      "[model] hidden must be (n,D) and targets (n), got {} and {}",
      c10::str(hidden.sizes()),
      c10::str(targets.sizes())
  );
  if (!has_memory(hidden)) {  // a graph of its own
    const at::Tensor known = targets.clamp_min(-1);
    return at::cross_entropy_loss(logits(hidden), known, {}, at::Reduction::Sum, -1);
  }
  return head_loss(hidden, {head_.weight, head_.bias, o_.logit_cap}, targets);
}

at::Tensor Model::forward(const at::Tensor& input, ModelState& state, const Context& context) {
  return logits(hidden(input, state, context));
}

std::shared_ptr<Model> make_model(const ModelOptions& options, uint64_t seed) {
  const Initial all(seed);
  return std::make_shared<Model>(options);
}

int64_t state_bytes(const ModelOptions& o, int64_t T) {
  int64_t total = o.positions > 0 ? int64_t(sizeof(int64_t)) : 0;  // how many tokens were seen
  std::map<std::string, int64_t> of_layer;                         // each mixer is measured once
  for (int64_t l = 0; l < o.layers; ++l) {
    const MixerSpec spec = mixer_at(o, l);
    const auto [found, missing] = of_layer.try_emplace(spec.text(), 0);
    if (missing) {
      const MixerType& type = find_mixer(spec.name);
      const Json options = type.parse(spec.settings_text());
      const bool causal = type.make(o.D, options)->causal();
      found->second = causal ? state_bytes(type, o.D, T, options) : 0;
    }
    total += found->second;
  }
  return total;
}

}  // namespace horner
