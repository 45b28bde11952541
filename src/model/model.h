// A model: a pattern of mixers, repeated down the layers, between an embedding and a head.
//
//   x = E[token] (+ P[position])
//   x += mixer_l(norm(x));   x += SwiGLU(norm(x)) or nothing;   l = 1..L
//   SwiGLU(x) = (SiLU(x W1) * x W3) W2
//   language    logits = norm(x) W_head for every token, capped: c tanh(./c)       (B,T,vocabulary)
//   classifier  logits = (mean over tokens of norm(x)) W_head + b                  (B,classes)
//
// A pattern is a list of "mixer" or "mixer:settings": ["window:window=64", "mlstm"]. SWAX is
// ["window", "mlstm"] with a window drawn per batch (stochastic_window.h). Weights start N(0,
// 0.02).
#pragma once

#include "mixers/mixer.h"
#include "mixers/parts.h"
#include "model/state.h"

namespace horner {

struct ModelOptions {
  std::vector<std::string> pattern = {"softmax"};
  int64_t layers = 2;
  int64_t D = 64;
  int64_t vocabulary = 256;
  int64_t classes = 0;
  std::string mlp = "swiglu";
  int64_t mlp_dim = 0;
  std::string norm = "rms";
  bool tied = false;
  double logit_cap = 0;
  int64_t positions = 0;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("pattern", pattern, "mixers, repeated down the layers: mixer or mixer:settings");
    visit("layers", layers, "layers L");
    visit("D", D, "model dim");
    visit("vocabulary", vocabulary, "tokens that the embedding knows");
    visit("classes", classes, "0: a language model; else a classifier of whole sequences");
    visit("mlp", mlp, "after each mixer", {"swiglu", "none"});
    visit("mlp_dim", mlp_dim, "its inner width; 0: 8 D / 3 rounded up to a multiple of 64");
    visit("norm", norm, "before each mixer and mlp, and at the end", {"rms", "layer"});
    visit("tied", tied, "the head is the embedding");
    visit("logit_cap", logit_cap, "logits are cap tanh(. / cap); 0: as they are");
    visit("positions", positions, "learned absolute positions up to this length; 0: none");
  }
};

class Block : public torch::nn::Module {
 public:
  Block(const std::string& mixer, const ModelOptions& options);  // "mixer" or "mixer:settings"
  at::Tensor forward(const at::Tensor& x, State& state, const Context& context);
  Mixer& mixer() { return *mixer_; }

 private:
  std::shared_ptr<Mixer> mixer_;
  HeadNorm norm_, mlp_norm_;
  Linear up_, gate_, down_;
};

class Model : public torch::nn::Module {
 public:
  explicit Model(const ModelOptions& options);

  // tokens (B,T) -> (B,T,vocabulary), or (B,classes) of what this call holds; the state goes on.
  at::Tensor forward(const at::Tensor& tokens, ModelState& state, const Context& context = {});
  const ModelOptions& options() const { return o_; }
  Block& block(int64_t layer) { return *blocks_.at(size_t(layer)); }

 private:
  at::Tensor embed(const at::Tensor& tokens, ModelState& state, const Context& context) const;

  const ModelOptions o_;
  at::Tensor embedding_, positions_;  // (vocabulary,D), (positions,D)
  std::vector<std::shared_ptr<Block>> blocks_;
  HeadNorm norm_;
  Linear head_;
};

}  // namespace horner
