// One call of CpuDecoder. Between two waits, each thread has its own share of the rows, of the rows of a weight, or of the keys.
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/check.h"
#include "engine/cpu/decoder.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/slots.h"

namespace horner {
namespace {

constexpr int64_t kPiece = 512;    // rows of a call that prefill makes
constexpr int64_t kTileRows = 32;  // rows that attend together
// Keys of a part. It depends on nothing else, so that a row has the same bits in any call: alone, beside others, in a prompt.
constexpr int64_t kPartKeys = 2 * kPage;
constexpr int64_t kGrain = 1 << 20;  // bytes of weights, times rows, that are worth a thread
constexpr int64_t kInputs = PackedWeight::kInputs;

bool is_rounded(const PackedWeight& w) {
  return w.type == PackedType::u8 || w.type == PackedType::u4;
}
const float* data(const at::Tensor& x) { return x.defined() ? x.const_data_ptr<float>() : nullptr; }

void grow(std::vector<float>& x, int64_t n) {
  if (int64_t(x.size()) < n) x.resize(size_t(n));
}

void add(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; x != nullptr && i < n; ++i) y[i] += x[i];
}

}  // namespace

// Rows `first` .. of one stream: their positions, room in its pages, and their tiles.
void CpuDecoder::plan_stream(int64_t first, int64_t rows) {
  Pages& stream = *rows_[size_t(first)].stream;
  stream.reserve(shape_, rows);
  runs_.push_back({first, rows});
  for (int64_t i = 0; i < rows; ++i) place_.push_back(stream.length() + i);
  if (shape_.numbers == 0) return;  // no layer has pages
  for (int64_t i = 0; i < rows; i += kTileRows) {
    const int64_t count = std::min(kTileRows, rows - i), keys = stream.length() + i + count;
    tiles_.push_back({first + i, count, keys, kPartKeys, int64_t(items_.size())});
    for (int64_t j = 0; j < tiles_.back().parts(); ++j)
      items_.push_back({int64_t(tiles_.size()) - 1, j});
    tile_rows_ = std::max(tile_rows_, count);
    tile_of_.insert(tile_of_.end(), size_t(count), int64_t(tiles_.size()) - 1);
  }
}

// The cosines of all rows' positions, once for all layers.
void CpuDecoder::plan_rotations() {
  for (Rotation& rotation : rotations_) {
    const int64_t P = rotation.rates.numel();
    const double* rates = rotation.rates.const_data_ptr<double>();
    grow(rotation.cos, int64_t(place_.size()) * P), grow(rotation.sin, int64_t(place_.size()) * P);
    for (size_t i = 0; i < place_.size(); ++i) {
      for (int64_t j = 0; j < P; ++j) {
        const double angle = double(place_[i]) * rates[j];
        rotation.cos[i * size_t(P) + size_t(j)] = float(std::cos(angle));
        rotation.sin[i * size_t(P) + size_t(j)] = float(std::sin(angle));
      }
    }
  }
}

void CpuDecoder::plan() {
  place_.clear(), tile_of_.clear(), tiles_.clear(), items_.clear(), runs_.clear();
  tile_rows_ = 0;
  const int64_t n = int64_t(rows_.size());
  for (int64_t first = 0; first < n;) {
    int64_t end = first + 1;
    while (end < n && rows_[size_t(end)].stream == rows_[size_t(first)].stream) ++end;
    plan_stream(first, end - first);
    first = end;
  }
  plan_rotations();
  int64_t H = 0, K = 0, V = 0, E = 0, heads = 0, gates = 0, scratch = 0;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    H = std::max(H, layer.q.out), K = std::max(K, layer.k.out), V = std::max(V, layer.v.out);
    E = std::max(E, layer.up.out);
    heads = std::max(heads, layer.H * (shape_.layers[l].V + 2));
    gates = std::max(gates, layer.far_gates.out);
    if (layer.hybrid)
      scratch = std::max(scratch, layer.hybrid->scratch() + layer.q.out + layer.k.out);
  }
  grow(x_, n * o_.D), grow(q_, n * H), grow(k_, n * K), grow(v_, n * V);
  grow(far_gates_, n * gates), grow(gate_, n * E), grow(up_, n * E);
  grow(partial_, int64_t(items_.size()) * tile_rows_ * heads);
  const int64_t queries = tile_rows_ * queries_, threads = at::get_num_threads();
  grow(scratch_, threads * std::max(scratch, tile_rows_ * H));
  if (int64_t(bounds_.size()) < threads * 2 * queries)
    bounds_.resize(size_t(threads * 2 * queries));
  in_.resize(n, o_.D), last_.resize(int64_t(wanted_.size()), o_.D);
  grow(logits_, int64_t(wanted_.size()) * vocabulary());
}

std::span<const float> CpuDecoder::forward(
    std::span<const Row> rows, std::span<const int64_t> wanted
) {
  for (const Row& row : rows)
    HORNER_CHECK(
        row.token >= 0 && row.token < o_.vocabulary,
        "[decoder] token {} is not among {}",
        row.token,
        o_.vocabulary
    );
  rows_ = rows, wanted_ = wanted;
  plan();
  const auto n = int64_t(rows.size()), threads = weight_bytes_ * n / kGrain;
  const bool alone = team_size_.alone(n);
  const auto begin = std::chrono::steady_clock::now();
  const double lost = on_threads(
      alone ? 1 : std::max<int64_t>(1, threads), [this](const Team& team) { run(team); }
  );
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  team_size_.took(n, alone, seconds.count(), lost);
  for (const Row& row : rows) row.stream->advance(1);
  return {logits_.data(), wanted.size() * size_t(vocabulary())};
}

std::span<const float> CpuDecoder::prefill(Pages& stream, std::span<const int32_t> tokens) {
  HORNER_CHECK(!tokens.empty(), "[decoder] there is no token to read");
  Row rows[kPiece];
  for (size_t begin = 0;; begin += kPiece) {
    const size_t n = std::min<size_t>(kPiece, tokens.size() - begin);
    for (size_t i = 0; i < n; ++i) rows[i] = {&stream, tokens[begin + i]};
    const bool ends = begin + n == tokens.size();
    const int64_t last = int64_t(n) - 1;
    const auto logits = forward({rows, n}, {&last, ends ? size_t(1) : 0});
    if (ends) return logits;
  }
}

void CpuDecoder::run(const Team& team) {
  const int64_t n = int64_t(rows_.size()), D = o_.D;
  for (int64_t i = team.begin(n); i < team.end(n); ++i)
    embedding_.row(rows_[size_t(i)].token, x_.data() + i * D);
  team.wait();
  for (size_t l = 0; l < layers_.size(); ++l) {
    mix(team, layers_[l], shape_.layers[l]);
    mlp(team, layers_[l]);
  }
  const int64_t outputs = int64_t(wanted_.size());
  for (int64_t i = team.begin(outputs); i < team.end(outputs); ++i) {
    rms_norm_row(x_.data() + wanted_[size_t(i)] * D, data(norm_), o_.norm_eps, D, last_.row(i));
    if (is_rounded(head())) round_blocks(last_, i, 0, last_.blocks());
  }
  team.wait();
  if (outputs == 0) return;
  share(team, last_, {{head(), logits_.data()}});
  if (o_.logit_cap > 0) {
    const float cap = float(o_.logit_cap);
    const int64_t all = outputs * vocabulary();
    for (int64_t i = team.begin(all); i < team.end(all); ++i)
      logits_[size_t(i)] = cap * std::tanh(logits_[size_t(i)] / cap);
    team.wait();
  }
}

// The threads share the groups of 16 rows of all weights together.
void CpuDecoder::share(
    const Team& team, const Activations& x, std::initializer_list<Product> products
) const {
  int64_t total = 0, before = 0;
  for (const Product& p : products) total += p.w.groups();
  const int64_t begin = team.begin(total), end = team.end(total);
  for (const Product& p : products) {
    const int64_t from = std::max<int64_t>(begin - before, 0);
    const int64_t to = std::min(end - before, p.w.groups());
    if (from < to) product(p.w, from, to, x, p.y, p.w.out, p.add);
    before += p.w.groups();
  }
  team.wait();
}

// in = norm(x + the layer's out_bias, where it was not added yet)
void CpuDecoder::normalise(
    const Team& team, const Layer* layer, const at::Tensor& weight, bool rounds
) {
  const int64_t n = int64_t(rows_.size());
  for (int64_t i = team.begin(n); i < team.end(n); ++i) {
    float* x = x_.data() + i * o_.D;
    if (layer != nullptr) add(data(layer->out_bias), o_.D, x);
    rms_norm_row(x, data(weight), o_.norm_eps, o_.D, in_.row(i));
    if (rounds) round_blocks(in_, i, 0, in_.blocks());
  }
  team.wait();
}

// One head of a query or key: norm, rotation, scale.
void CpuDecoder::turn(
    const Layer& layer, float* x, const at::Tensor& norm, int64_t row, float scale
) const {
  if (norm.defined()) rms_norm_row(x, data(norm), layer.qk_norm_eps, layer.K, x);
  const int64_t P = layer.K / 2;
  if (layer.rotation >= 0) {
    const Rotation& rotation = rotations_[size_t(layer.rotation)];
    const float *c = rotation.cos.data() + row * P, *s = rotation.sin.data() + row * P;
    for (int64_t j = 0; j < P; ++j) {
      const float a = x[j], b = x[j + P];
      x[j] = (a * c[j] - b * s[j]) * scale;
      x[j + P] = (a * s[j] + b * c[j]) * scale;
    }
  } else {
    for (int64_t j = 0; j < layer.K; ++j) x[j] *= scale;
  }
}

// Finishes q, and puts k and v of a row into its stream's page.
void CpuDecoder::store(const Layer& layer, const CacheShape::Layer& cache, int64_t row) {
  const int64_t place = place_[size_t(row)], slot = place % kPage;
  float *q = q_.data() + row * layer.q.out, *k = k_.data() + row * layer.k.out;
  float* v = v_.data() + row * layer.v.out;
  add(data(layer.q_bias), layer.q.out, q);
  add(data(layer.k_bias), layer.k.out, k);
  add(data(layer.v_bias), layer.v.out, v);
  const float scale = float(1 / std::sqrt(double(layer.K)));
  for (int64_t h = 0; h < layer.H; ++h) turn(layer, q + h * layer.K, layer.q_norm, row, scale);
  for (int64_t g = 0; g < layer.G; ++g) turn(layer, k + g * layer.K, layer.k_norm, row, 1);
  std::byte* page = rows_[size_t(row)].stream->page(place / kPage);
  const auto put = [&](auto* numbers) {
    for (int64_t g = 0; g < layer.G; ++g)
      put_token(
          k + g * layer.K,
          layer.K,
          v + g * layer.V,
          layer.V,
          slot,
          numbers + cache.keys(g),
          numbers + cache.values(g)
      );
  };
  shape_.wide ? put(reinterpret_cast<float*>(page)) : put(reinterpret_cast<uint16_t*>(page));
}

// m, l and o of the queries of one item and key/value head.
float* CpuDecoder::partial(
    const Layer& layer, const CacheShape::Layer& cache, int64_t item, int64_t g
) {
  const int64_t r = layer.H / layer.G;
  return partial_.data() + (item * layer.G + g) * tile_rows_ * r * (cache.V + 2);
}

void CpuDecoder::attend_item(
    const Team& team, const Layer& layer, const CacheShape::Layer& cache, int64_t index, int64_t g
) {
  const Item& item = items_[size_t(index)];
  const Tile& tile = tiles_[size_t(item.tile)];
  const int64_t r = layer.H / layer.G, n = tile.rows * r, most = tile_rows_ * queries_;
  float* queries = scratch_.data() + team.thread * int64_t(scratch_.size()) / team.threads;
  int64_t *begins = bounds_.data() + team.thread * 2 * most, *ends = begins + most;
  for (int64_t i = 0; i < tile.rows; ++i) {
    const int64_t row = tile.first + i, place = place_[size_t(row)];
    std::copy_n(
        q_.data() + row * layer.q.out + g * r * layer.K, r * layer.K, queries + i * r * layer.K
    );
    for (int64_t h = 0; h < r; ++h) begins[i * r + h] = 0, ends[i * r + h] = place + 1;
  }
  Attend task;
  task.K = layer.K, task.V = cache.V, task.q = queries;
  task.begins = {begins, size_t(n)}, task.ends = {ends, size_t(n)};
  task.pages = rows_[size_t(tile.first)].stream->pages();
  task.wide = shape_.wide;
  task.keys = cache.keys(g), task.values = cache.values(g);
  task.begin = item.part * tile.part, task.end = std::min(tile.keys, task.begin + tile.part);
  task.m = partial(layer, cache, index, g), task.l = task.m + n, task.o = task.l + n;
  horner::attend(task);
}

// The parts of one row and head together: o = sum_p e^{m_p - m} o_p / sum_p e^{m_p - m} l_p
void CpuDecoder::merge(const Layer& layer, const CacheShape::Layer& cache, int64_t row, int64_t h) {
  const Tile& tile = tiles_[size_t(tile_of_[size_t(row)])];
  const int64_t r = layer.H / layer.G, n = tile.rows * r, i = (row - tile.first) * r + h % r;
  float m = -std::numeric_limits<float>::infinity(), l = 0;
  for (int64_t p = 0; p < tile.parts(); ++p)
    m = std::max(m, partial(layer, cache, tile.item + p, h / r)[i]);
  float* y = mixed_.row(row) + h * layer.V;
  std::fill(y, y + layer.V, 0.f);
  for (int64_t p = 0; p < tile.parts(); ++p) {
    const float* part = partial(layer, cache, tile.item + p, h / r);
    const float weight = std::exp(part[i] - m);
    const float* o = part + 2 * n + i * cache.V;
    l += weight * part[n + i];
    for (int64_t c = 0; c < layer.V; ++c) y[c] += weight * o[c];
  }
  for (int64_t c = 0; c < layer.V; ++c) y[c] /= l;
}

void CpuDecoder::mix(const Team& team, const Layer& layer, const CacheShape::Layer& cache) {
  const int64_t n = int64_t(rows_.size());
  if (team.thread == 0) mixed_.resize(n, layer.out.in), hidden_.resize(n, layer.down.in);
  normalise(
      team, nullptr, layer.norm, is_rounded(layer.q) || is_rounded(layer.k) || is_rounded(layer.v)
  );
  share(
      team,
      in_,
      {{layer.q, q_.data()},
       {layer.k, k_.data()},
       {layer.v, v_.data()},
       {layer.far_gates, far_gates_.data()}}
  );
  layer.hybrid ? step_heads(team, layer) : attend(team, layer, cache);
  team.wait();
  share(team, mixed_, {{layer.out, x_.data(), true}});
}

void CpuDecoder::attend(const Team& team, const Layer& layer, const CacheShape::Layer& cache) {
  const int64_t n = int64_t(rows_.size());
  for (int64_t i = team.begin(n); i < team.end(n); ++i) store(layer, cache, i);
  team.wait();
  const int64_t items = int64_t(items_.size()) * layer.G;
  for (int64_t i = team.thread; i < items; i += team.threads)
    attend_item(team, layer, cache, i / layer.G, i % layer.G);
  team.wait();
  const bool whole = layer.V % kInputs == 0;  // a head is whole blocks of the next product
  const int64_t H = layer.H, units = n * H;
  const int64_t begin = whole ? team.begin(units) : team.begin(n) * H;
  const int64_t end = whole ? team.end(units) : team.end(n) * H;
  for (int64_t i = begin; i < end; ++i) {
    merge(layer, cache, i / H, i % H);
    if (!is_rounded(layer.out)) continue;
    if (whole) {
      const int64_t blocks = layer.V / kInputs, h = i % H;
      round_blocks(mixed_, i / H, h * blocks, (h + 1) * blocks);
    } else if (i % H == H - 1) {
      round_blocks(mixed_, i / H, 0, mixed_.blocks());
    }
  }
}

// A thread takes heads of streams and goes through all rows of each: one token's state is the next one's input.
void CpuDecoder::step_heads(const Team& team, const Layer& layer) {
  const int64_t n = int64_t(rows_.size()), G = layer.G, numbers = layer.H / G * layer.V;
  const bool whole = numbers % kInputs == 0;  // a head is whole blocks of the next product
  const int64_t units = int64_t(runs_.size()) * G, blocks = numbers / kInputs;
  for (int64_t unit = team.thread; unit < units; unit += team.threads) {
    const Run& run = runs_[size_t(unit / G)];
    const int64_t g = unit % G;
    for (int64_t row = run.first; row < run.first + run.rows; ++row) {
      step_head(team, layer, row, g);
      if (whole && is_rounded(layer.out)) round_blocks(mixed_, row, g * blocks, (g + 1) * blocks);
    }
  }
  if (whole || !is_rounded(layer.out)) return;
  team.wait();
  for (int64_t i = team.begin(n); i < team.end(n); ++i) round_blocks(mixed_, i, 0, mixed_.blocks());
}

void CpuDecoder::step_head(const Team& team, const Layer& layer, int64_t row, int64_t g) {
  const int64_t K = layer.K, V = layer.V, r = layer.H / layer.G;
  float* scratch = scratch_.data() + team.thread * int64_t(scratch_.size()) / team.threads;
  float *q = q_.data() + row * layer.q.out + g * r * K, *k = k_.data() + row * layer.k.out + g * K;
  float* v = v_.data() + row * layer.v.out + g * V;
  if (layer.q_bias.defined()) {
    add(data(layer.q_bias) + g * r * K, r * K, q);
    add(data(layer.k_bias) + g * K, K, k);
    add(data(layer.v_bias) + g * V, V, v);
  }
  const float *far_q = q, *far_k = k;
  if (!layer.hybrid->rotates_far()) {
    const auto normed = [&](const float* x, int64_t heads, const at::Tensor& norm) {
      float* y = std::copy_n(x, heads * K, scratch) - heads * K;
      for (int64_t h = 0; norm.defined() && h < heads; ++h)
        rms_norm_row(y + h * K, data(norm), layer.qk_norm_eps, K, y + h * K);
      scratch += heads * K;
      return y;
    };
    far_q = normed(q, r, layer.q_norm), far_k = normed(k, 1, layer.k_norm);
  }
  const float scale = float(1 / std::sqrt(double(K)));
  for (int64_t h = 0; h < r; ++h) turn(layer, q + h * K, layer.q_norm, row, scale);
  turn(layer, k, layer.k_norm, row, 1);
  const HybridLayer::Token token{
      place_[size_t(row)],
      q,
      k,
      v,
      far_q,
      far_k,
      far_gates_.data() + row * layer.far_gates.out,
      mixed_.row(row) + g * r * V};
  layer.hybrid->step(g, token, rows_[size_t(row)].stream->state(), scratch);
}

// A thread has the same groups of gate and up, in pairs: their 32 columns are a block of the next product.
void CpuDecoder::mlp(const Team& team, const Layer& layer) {
  normalise(team, &layer, layer.mlp_norm, is_rounded(layer.gate) || is_rounded(layer.up));
  const int64_t n = int64_t(rows_.size()), E = layer.up.out;
  const int64_t groups = layer.up.groups(), pairs = (groups + 1) / 2;
  const int64_t begin = team.begin(pairs), end = team.end(pairs);
  const int64_t last = std::min(groups, 2 * end);
  product(layer.gate, 2 * begin, last, in_, gate_.data(), E, false);
  product(layer.up, 2 * begin, last, in_, up_.data(), E, false);
  const int64_t from = begin * kInputs, to = std::min(E, end * kInputs);
  for (int64_t i = 0; i < n && from < to; ++i) {
    const float *gate = gate_.data() + i * E, *up = up_.data() + i * E;
    swiglu_row(gate + from, up + from, to - from, hidden_.row(i) + from);
    if (is_rounded(layer.down)) round_blocks(hidden_, i, begin, end);
  }
  team.wait();
  share(team, hidden_, {{layer.down, x_.data(), true}});
}

}  // namespace horner
