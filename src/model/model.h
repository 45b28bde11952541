// A model: a pattern of mixers, repeated down the layers, between an embedding and a head.
//
//   x = E[token] or u W_in (+ P[position]) (+ S[segment]) (norm)
//   x += mixer_l(norm(x));   x += mlp(norm(x)) or nothing;   l = 1..L
//   norm_place = after:   x = norm(x + mixer_l(x));   x = norm(x + mlp(x));   no norm at the end
//   swiglu(x) = (SiLU(x W1) * x W3) W2          gelu(x) = GELU(x W1) W2
//   language    logits = norm(x) W_head for every token, capped: c tanh(./c)       (B,T,vocabulary)
//   number      one value for every token                                          (B,T,1)
//   classifier  logits = (mean over tokens, or last, of norm(x)) W_head + b        (B,classes)
//   rebuild     logits = GELU((last norm(x) + code(t)) W + b) W_head for every t    (B,T,vocabulary)
//   hidden      norm(x), without a head: an encoder                                 (B,T,D)
//
// Tokens from `lengths` on are padding and change nothing. Mixers that read in one direction cannot see them. For mixers that
// read in both directions the rows are packed without them.
//
// A pattern is a list of "mixer" or "mixer:settings": ["window:window=64", "mlstm"]. SWAX is
// ["window", "mlstm"] with a window drawn per batch (stochastic_window.h). Weights start N(0, 0.02); with init = gpt2 those
// that write into x are smaller by 1/sqrt(2 L).
#pragma once

#include "mixers/mixer.h"
#include "model/state.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace horner {

struct ModelOptions {
  std::vector<std::string> pattern = {"softmax"};
  int64_t layers = 2;
  int64_t D = 64;
  int64_t vocabulary = 256;
  int64_t features = 0;
  int64_t classes = 0;
  std::string output = "tokens";
  std::string pool = "mean";
  std::string mlp = "swiglu";
  int64_t mlp_dim = 0;
  bool mlp_bias = false;
  std::string norm = "rms";
  double norm_eps = 1e-5;
  bool norm_bias = false;
  std::string norm_place = "before";
  bool embedding_norm = false;
  std::string init = "normal";
  bool tied = false;
  double logit_cap = 0;
  int64_t positions = 0;
  int64_t segments = 0;
  double dropout = 0;
  std::string dropout_at = "all";

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("pattern", pattern, "mixers, repeated down the layers: mixer or mixer:settings");
    visit("layers", layers, "layers L");
    visit("D", D, "model dim");
    visit("vocabulary", vocabulary, "tokens that the embedding knows");
    visit("features", features, "numbers per position instead of tokens; 0: tokens");
    visit("classes", classes, "0: an output per position; else a classifier of whole sequences");
    visit(
        "output",
        output,
        "per position: the next token, a number, the whole sequence from its last position, or x",
        {"tokens", "number", "rebuild", "hidden"}
    );
    visit("pool", pool, "what a classifier reads of the positions", {"mean", "last"});
    visit("mlp", mlp, "after each mixer", {"swiglu", "gelu", "gelu_tanh", "none"});
    visit("mlp_dim", mlp_dim, "its inner width; 0: 8 D / 3 rounded up to 64, gelu: 4 D");
    visit("mlp_bias", mlp_bias, "its matrices have biases");
    visit("norm", norm, "before each mixer and mlp, and at the end", {"rms", "layer"});
    visit("norm_eps", norm_eps, "epsilon of these norms");
    visit("norm_bias", norm_bias, "norm = layer adds a bias");
    visit(
        "norm_place",
        norm_place,
        "after: of x + mixer(x) and x + mlp(x), and none at the end",
        {"before", "after"}
    );
    visit("embedding_norm", embedding_norm, "a norm of the embedding");
    visit(
        "init",
        init,
        "gpt2: what writes into x starts 1/sqrt(2 L) as large; torch: as torch.nn's layers do; "
        "torch_linear: so do matrices, the embedding N(0, 0.02); xlstm: as xlstm-jax",
        {"normal", "gpt2", "torch", "torch_linear", "xlstm"}
    );
    visit("tied", tied, "the head is the embedding");
    visit("logit_cap", logit_cap, "logits are cap tanh(. / cap); 0: as they are");
    visit("positions", positions, "learned absolute positions up to this length; 0: none");
    visit(
        "segments",
        segments,
        "learned vectors of a text's segments, added to the embedding; 0: none"
    );
    visit("dropout", dropout, "share of values that training drops");
    visit("dropout_at", dropout_at, "all: embedding, mixers and mlps", {"all", "embedding"});
  }
};

MixerSpec mixer_at(const ModelOptions& options, int64_t layer);  // from the repeated pattern

class Block : public torch::nn::Module {
 public:
  Block(const MixerSpec& mixer, const ModelOptions& options);
  at::Tensor forward(const at::Tensor& x, State& state, const Context& context);
  // The same on x + delta, of which the sum and its norm are computed together. Returns what is to be added to x,
  // which becomes the sum before it; nothing with norm_place = after.
  at::Tensor forward(at::Tensor& x, const at::Tensor& delta, State& state, const Context& context);
  Mixer& mixer() { return *mixer_; }
  bool drops() const { return is_training() && dropout_ > 0; }

 private:
  at::Tensor mlp(const at::Tensor& x) const;

  const double dropout_;
  const bool norm_after_, tanh_;
  std::shared_ptr<Mixer> mixer_;
  HeadNorm norm_, mlp_norm_;
  Linear up_, gate_, down_;
};

// Called around each block of a forward; x + delta, or x where delta is undefined, runs from block to block. Whoever watches
// may replace all three, by nodes of the graph for example, so that something happens in the backward too.
class BlockWatch {
 public:
  virtual ~BlockWatch() = default;
  virtual void enter(int64_t layer, at::Tensor& x, at::Tensor& delta, State& state) = 0;
  virtual void leave(int64_t layer, at::Tensor& x, at::Tensor& delta, State& state) = 0;
};

class Model : public torch::nn::Module {
 public:
  // Without blocks: only what stands before and after them, for begin and end.
  explicit Model(const ModelOptions& options, bool with_blocks = true);

  // tokens (B,T) or features (B,T,d) -> (B,T,vocabulary), (B,T,1), (B,classes) or (B,T,D); updates the state.
  at::Tensor forward(const at::Tensor& input, ModelState& state, const Context& context = {});
  // The forward in two halves, so that the head is computed only at positions that have a target:
  at::Tensor hidden(const at::Tensor& input, ModelState& state, const Context& context = {});
  at::Tensor logits(const at::Tensor& hidden) const;  // (..,D) -> (..,vocabulary)
  // What hidden does before and after the blocks; delta, if there is one, is to be added to x.
  at::Tensor begin(const at::Tensor& input, ModelState& state, const Context& context = {}) const;
  at::Tensor end(const at::Tensor& x, const at::Tensor& delta, const Context& context = {}) const;
  // Cross entropy of logits(hidden), summed; hidden (n,D), targets (n). The logits are never held whole.
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& targets) const;

  const ModelOptions& options() const { return o_; }
  Block& block(int64_t layer) { return *blocks_.at(size_t(layer)); }
  void watch(BlockWatch* watch) { watch_ = watch; }  // null: nobody watches
  bool causal() const;                               // whether every mixer reads in one direction
  int64_t parameters_count() const;

 private:
  at::Tensor embed(const at::Tensor& input, ModelState& state, const Context& context) const;
  at::Tensor places(const at::Tensor& input, ModelState& state, const Context& context) const;
  at::Tensor run_blocks(at::Tensor x, ModelState& state, const Context& context);
  at::Tensor normed(const at::Tensor& x, const at::Tensor& delta) const;
  bool reads_whole() const { return o_.classes > 0 || o_.output == "rebuild"; }
  at::Tensor pooled(const at::Tensor& x, const Context& context) const;

  const ModelOptions o_;
  at::Tensor embedding_, positions_, segments_;  // (vocabulary,D), (positions,D), (segments,D)
  Linear input_, rebuild_;
  std::vector<std::shared_ptr<Block>> blocks_;
  BlockWatch* watch_ = nullptr;
  HeadNorm embedding_norm_, norm_;
  Linear head_;
};

// The weights depend only on (seed, name of the tensor), so models that differ in their mixers share the other weights.
std::shared_ptr<Model> make_model(const ModelOptions& options, uint64_t seed);

// Bytes of the state after T tokens of one sequence, over all layers, measured from its tensors.
int64_t state_bytes(const ModelOptions& options, int64_t T);

}  // namespace horner
