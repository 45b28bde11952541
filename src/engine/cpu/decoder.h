// A language model of softmax, window or hybrid layers, SwiGLU and RMS norms as a few CPU cores run it fastest: the weights
// packed (nn/quantised), keys and values as halves, all threads in one loop over the layers, no allocation per token. Softmax
// layers keep pages of keys and values, the others a state of constant size (hybrid_layer.h).
//
//   x = E[token];   x += mixer(norm(x)) W_o;   x += (SiLU(norm(x) W1) * norm(x) W3) W2;   logits = norm(x) W_head
//
// A call takes rows: one token each, of one or several streams. A prompt is many rows of one stream, a step one row of each
// stream. The numbers are those of Model::forward with the same weights, up to the order of sums. Where the weights have
// 8 or 4 bits, activations are rounded to int8 (nn/quantised/product.h); keys and values are halves unless all weights are fp32.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>

#include "core/threads.h"
#include "engine/cpu/hybrid_layer.h"
#include "engine/cpu/pages.h"
#include "model/model.h"
#include "nn/position/position.h"
#include "nn/quantised/product.h"

namespace horner {

// Weights of a GGUF file by the names of the model's parameters.
using GgufWeights = std::map<std::string, GgufMatrix>;

class CpuDecoder {
 public:
  // Why it cannot run this model; empty: it can.
  static std::string refuses(Model& model);

  // weights: fp32, bf16, q8; q4: in the layers, the embedding and the head have 8 bits, which halves KL; auto: the blocks of `blocks` as they are, else the type of the model's parameters.
  CpuDecoder(Model& model, const std::string& weights = "auto", const GgufWeights& blocks = {});

  struct Row {
    Pages* stream;
    int32_t token;
  };
  // Reads the rows and advances their streams; rows of one stream stand together, in their order. Returns the logits
  // (n,vocabulary) of the rows whose indices are `wanted`. They are valid until the next call.
  std::span<const float> forward(std::span<const Row> rows, std::span<const int64_t> wanted);

  // Tokens of one stream, in pieces of at most 512. Returns the logits of the last one.
  std::span<const float> prefill(Pages& stream, std::span<const int32_t> tokens);
  std::span<const float> step(Pages& stream, int32_t token) { return prefill(stream, {&token, 1}); }

  int64_t vocabulary() const { return head().out; }
  int64_t weight_bytes() const { return weight_bytes_; }  // that a token reads
  int64_t cache_bytes(int64_t length) const;              // likewise, after so many tokens
  int64_t state_bytes(int64_t length) const;              // that a stream of so many tokens keeps
  const CacheShape& shape() const { return shape_; }
  const std::string& name() const { return name_; }

 private:
  struct Layer {
    PackedWeight q, k, v, out, gate, up, down;
    PackedWeight far_gates;                       // of a hybrid; empty: none
    at::Tensor q_bias, k_bias, v_bias, out_bias;  // fp32, or undefined
    at::Tensor norm, mlp_norm, q_norm, k_norm;    // fp32; the last two may be undefined
    int64_t rotation = -1;                        // in rotations_; -1: none
    int64_t H = 0, G = 0, K = 0, V = 0;
    double qk_norm_eps = 0;
    std::shared_ptr<HybridLayer> hybrid;  // null: softmax
  };
  // Of layers with the same frequencies. The angles are computed in fp64, their cosines are fp32.
  struct Rotation {
    std::string settings;
    at::Tensor rates;             // (K/2), fp64
    std::vector<float> cos, sin;  // (rows,K/2)
  };
  // Rows of one stream.
  struct Run {
    int64_t first, rows;
  };
  // Rows of one stream that attend together, in parts of their keys.
  struct Tile {
    int64_t first, rows;  // rows of the call
    int64_t keys;         // that the last of them sees
    int64_t part;         // keys of a part, a multiple of kPage
    int64_t item;         // the first part's place in items_
    int64_t parts() const { return (keys + part - 1) / part; }
  };
  struct Item {
    int64_t tile, part;
  };
  // One of several products of one input, whose groups the threads share.
  struct Product {
    const PackedWeight& w;
    float* y;
    bool add = false;
  };

  using Packer = std::function<PackedWeight(const std::string&)>;
  Layer read_layer(Model& model, int64_t l, const Packer& packer, HugeArena& arena);
  int64_t rotation_of(const PositionOptions& position, int64_t K);
  const PackedWeight& head() const { return o_.tied ? embedding_ : head_; }

  void plan();
  void plan_stream(int64_t first, int64_t rows);
  void plan_rotations();
  void run(const Team& team);
  void mix(const Team& team, const Layer& layer, const CacheShape::Layer& cache);
  void attend(const Team& team, const Layer& layer, const CacheShape::Layer& cache);
  void step_heads(const Team& team, const Layer& layer);
  void step_head(const Team& team, const Layer& layer, int64_t row, int64_t g);
  void mlp(const Team& team, const Layer& layer);
  void share(const Team& team, const Activations& x, std::initializer_list<Product> products) const;
  void normalise(const Team& team, const Layer* layer, const at::Tensor& weight, bool rounds);
  void turn(const Layer& layer, float* x, const at::Tensor& norm, int64_t row, float scale) const;
  void store(const Layer& layer, const CacheShape::Layer& cache, int64_t row);
  void attend_item(const Team&, const Layer&, const CacheShape::Layer&, int64_t item, int64_t g);
  void merge(const Layer& layer, const CacheShape::Layer& cache, int64_t row, int64_t h);
  float* partial(const Layer& layer, const CacheShape::Layer& cache, int64_t item, int64_t g);

  const ModelOptions o_;
  std::string name_;
  std::vector<Layer> layers_;
  at::Tensor norm_;
  PackedWeight embedding_, head_;  // no head_ if they are tied
  CacheShape shape_;
  int64_t weight_bytes_ = 0;
  int64_t queries_ = 0;  // most query heads of a key/value head
  std::vector<Rotation> rotations_;

  TeamSize team_size_;

  // Of a call; their memory is kept.
  std::span<const Row> rows_;
  std::span<const int64_t> wanted_;
  std::vector<int64_t> place_, tile_of_;  // (rows): position in its stream, tile
  std::vector<Run> runs_;
  std::vector<Tile> tiles_;
  std::vector<Item> items_;
  int64_t tile_rows_ = 0;  // most rows of a tile
  std::vector<float> x_, q_, k_, v_, far_gates_, gate_, up_, partial_, scratch_, logits_;
  std::vector<int64_t> bounds_;  // (threads,2,queries of a tile)
  Activations in_, mixed_, hidden_, last_;
};

}  // namespace horner
