#include "model/model.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"

namespace horner {
namespace {

// "taylor:order=4" as a mixer of width D.
std::shared_ptr<Mixer> mixer_of(const std::string& text, int64_t D) {
  const size_t colon = text.find(':');
  return make_mixer(
      text.substr(0, colon), D, colon == std::string::npos ? "" : text.substr(colon + 1)
  );
}

// The place of each token in its own sequence of a packed batch.   (n+1) -> (1,T)
at::Tensor packed_places(const at::Tensor& cu_seqlens, const at::Tensor& tokens) {
  const at::Tensor t = at::arange(tokens.size(1), tokens.device());
  const at::Tensor starts = cu_seqlens.to(tokens.device(), at::kLong);
  const at::Tensor sequence = at::searchsorted(starts, t, false, true) - 1;
  return (t - starts.index_select(0, sequence)).unsqueeze(0);
}

}  // namespace

Block::Block(const std::string& mixer, const ModelOptions& o) {
  mixer_ = register_module("mixer", mixer_of(mixer, o.D));
  norm_ = head_norm(*this, "norm", o.norm, 1e-5, {o.D});
  if (o.mlp == "none") return;
  const int64_t E = o.mlp_dim > 0 ? o.mlp_dim : (8 * o.D / 3 + 63) / 64 * 64;
  mlp_norm_ = head_norm(*this, "mlp_norm", o.norm, 1e-5, {o.D});
  gate_ = linear(*this, "mlp_gate", o.D, E);
  up_ = linear(*this, "mlp_up", o.D, E);
  down_ = linear(*this, "mlp_down", E, o.D);
}

at::Tensor Block::forward(const at::Tensor& x, State& state, const Context& context) {
  const at::Tensor y = x + mixer_->forward(norm_(x), state, context);
  if (!down_.weight.defined()) return y;
  const at::Tensor z = mlp_norm_(y);
  return y + down_(at::silu(gate_(z)) * up_(z));
}

Model::Model(const ModelOptions& o) : o_(o) {
  for (const auto& [name, value] :
       {std::pair{"layers", o.layers}, {"D", o.D}, {"vocabulary", o.vocabulary}}) {
    check_at_least("model", name, double(value), 1);
  }
  for (const auto& [name, value] :
       {std::pair{"classes", o.classes}, {"mlp_dim", o.mlp_dim}, {"positions", o.positions}}) {
    check_at_least("model", name, double(value), 0);
  }
  check_at_least("model", "logit_cap", o.logit_cap, 0);
  HORNER_CHECK(!o.pattern.empty(), "[model] pattern must name at least one mixer");
  HORNER_CHECK(!o.tied || o.classes == 0, "[model] tied is for a language model");
  embedding_ = register_parameter("embedding", normal({o.vocabulary, o.D}));
  if (o.positions > 0) positions_ = register_parameter("positions", normal({o.positions, o.D}));
  for (int64_t l = 0; l < o.layers; ++l) {
    const std::string& mixer = o.pattern[size_t(l) % o.pattern.size()];
    blocks_.push_back(register_module(fmt::format("layer_{}", l), std::make_shared<Block>(mixer, o))
    );
  }
  norm_ = head_norm(*this, "norm", o.norm, 1e-5, {o.D});
  if (o.tied) {
    head_.weight = embedding_;
  } else {
    head_ = linear(*this, "head", o.D, o.classes > 0 ? o.classes : o.vocabulary, o.classes > 0);
  }
}

at::Tensor Model::embed(const at::Tensor& tokens, ModelState& state, const Context& context) const {
  const at::Tensor x = at::embedding(embedding_, tokens);
  if (!positions_.defined()) return x;
  const int64_t T = tokens.size(1);
  const bool packed = context.cu_seqlens.defined();
  HORNER_CHECK(
      !packed || !state.seen.defined(),
      "[model] learned positions: a packed batch cannot go on from a state"
  );
  at::Tensor place = packed ? packed_places(context.cu_seqlens, tokens)
                            : at::arange(T, tokens.device()).unsqueeze(0);
  if (state.seen.defined()) place = place + state.seen.unsqueeze(1);
  HORNER_CHECK(
      place.max().item<int64_t>() < o_.positions,
      "[model] a sequence is longer than its {} learned positions",
      o_.positions
  );
  if (!packed) state.seen = place.select(1, T - 1).expand({tokens.size(0)}) + 1;
  return x + at::embedding(positions_, place);
}

at::Tensor Model::forward(const at::Tensor& tokens, ModelState& state, const Context& context) {
  HORNER_CHECK(
      tokens.dim() == 2 && at::isIntegralType(tokens.scalar_type(), false),
      "[model] tokens must be (B,T) whole numbers, got {} {}",
      c10::str(tokens.scalar_type()),
      c10::str(tokens.sizes())
  );
  at::Tensor x = embed(tokens, state, context);
  state.layers.resize(blocks_.size());
  for (size_t l = 0; l < blocks_.size(); ++l) x = blocks_[l]->forward(x, state.layers[l], context);
  x = norm_(x);
  if (o_.classes > 0) {
    HORNER_CHECK(!context.cu_seqlens.defined(), "[model] a classifier takes one sequence per row");
    return head_(x.mean(1));
  }
  const at::Tensor logits = head_(x);
  return o_.logit_cap > 0 ? o_.logit_cap * (logits / o_.logit_cap).tanh() : logits;
}

}  // namespace horner
