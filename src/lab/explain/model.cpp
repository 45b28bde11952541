#include "lab/explain/model.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "io/compressed.h"
#include "lab/bundled_text.h"
#include "model/formats/formats.h"

namespace horner {
namespace {

struct Role {
  const char* name;
  double (*value)(const HeadMeasures&);  // the head with the largest one plays it
};

constexpr size_t kOrderTwo = 1;  // its place in `series`

const std::vector<Role>& roles() {
  static const std::vector<Role> list = {
      {"reads the token before most", [](const HeadMeasures& h) { return h.previous; }},
      {"reads beyond the window most", [](const HeadMeasures& h) { return 1 - h.inside; }},
      {"gives the first tokens most weight", [](const HeadMeasures& h) { return h.first; }},
      {"continues a repetition most",
       [](const HeadMeasures& h) { return std::isnan(h.repeats) ? -1 : h.repeats; }},
      {"spreads its weight most", [](const HeadMeasures& h) { return h.entropy; }},
      {"is hardest for a series",
       [](const HeadMeasures& h) { return h.centred_series[kOrderTwo]; }},
  };
  return list;
}

// Pieces of T tokens, each after the token that begins a document if there is one.   (pieces,T)
std::vector<std::vector<int64_t>> pieces_of(
    const LoadedModel& loaded, const std::string& path, const ModelExplainOptions& o
) {
  const Tokenizer& tokenizer = loaded.need_tokenizer();
  std::vector<int64_t> start;
  if (tokenizer.begin() || tokenizer.end())
    start.push_back(tokenizer.begin() ? *tokenizer.begin() : *tokenizer.end());
  const std::vector<int32_t> ids = tokenizer.encode(read_decompressed(path), {.control = false});
  const size_t fresh = size_t(o.T) - start.size();
  if (ids.size() < fresh)
    throw DataError("{}: has {} tokens, T = {} want more text", path, ids.size(), o.T);
  std::vector<std::vector<int64_t>> pieces;
  for (size_t at = 0; at + fresh <= ids.size() && int64_t(pieces.size()) < o.pieces; at += fresh) {
    pieces.push_back(start);
    pieces.back().insert(
        pieces.back().end(), ids.begin() + int64_t(at), ids.begin() + int64_t(at + fresh)
    );
  }
  for (const auto& piece : pieces) {
    const int64_t largest = *std::max_element(piece.begin(), piece.end());
    if (largest >= loaded.model->options().vocabulary)
      throw DataError(
          "{}: token {} is outside the model's vocabulary of {}",
          path,
          largest,
          loaded.model->options().vocabulary
      );
  }
  return pieces;
}

at::Tensor tensor_of(const std::vector<std::vector<int64_t>>& pieces) {
  std::vector<at::Tensor> rows;
  for (const auto& piece : pieces) rows.push_back(at::tensor(piece, at::kLong));
  return at::stack(rows);
}

void check(const ModelExplainOptions& o) {
  HORNER_CHECK(o.T >= 2 && o.T <= 4096, "T must be in 2 .. 4096, got {}", o.T);
  HORNER_CHECK(o.pieces >= 1, "pieces must be at least 1, got {}", o.pieces);
  HORNER_CHECK(o.window >= 1, "window must be at least 1, got {}", o.window);
  HORNER_CHECK(o.sinks >= 0, "sinks must be at least 0, got {}", o.sinks);
}

void check(const LoadedModel& loaded, const ModelExplainOptions& o) {
  const ModelOptions& m = loaded.model->options();
  if (m.classes != 0 || m.output != "tokens" || m.features != 0 || !loaded.model->causal())
    throw DataError("{}: is not a language model that reads forwards", o.model);
  const int64_t longest = m.positions > 0 ? m.positions : loaded.context;
  HORNER_CHECK(
      longest == 0 || o.T <= longest,
      "T must be at most {}, the model's context, got {}",
      longest,
      o.T
  );
}

// Whether a layer is causal softmax attention: over all tokens or a window, under a decay or not.
bool is_softmax(Model& model, int64_t layer) {
  const Core core = model.block(layer).mixer().core(at::zeros({1, 2, model.options().D}));
  return core.keeps_tokens() && !core.system && core.options.causal && !core.options.clamp;
}

class Measurer {
 public:
  Measurer(ModelExplanation& e, std::vector<std::vector<int64_t>> pieces)
      : e_(e), pieces_(std::move(pieces)), best_(roles().size()) {}

  void measure(int64_t layer, const Core& core) {
    const auto finite = [](const at::Tensor& x) { return at::isfinite(x).all().item<bool>(); };
    if (!finite(core.in.q) || !finite(core.in.k))
      throw RunError(
          "layer {}: queries or keys are not finite: a weight of the model is not", layer
      );
    const at::Tensor m = core.in.k.flatten(0, 1).to(at::kDouble).mean(0);  // (G,K)
    for (int64_t h = 0; h < core.in.q.size(2); ++h) {
      HeadSums sums(e_.sight);
      for (size_t b = 0; b < pieces_.size(); ++b)
        sums.add(scores_of(core, int64_t(b), h, m), pieces_[b]);
      HeadMeasures measures = sums.measures();
      measures.layer = layer;
      measures.head = h;
      compete(measures, scores_of(core, 0, h, m));
      e_.heads.push_back(std::move(measures));
    }
  }

  // A head with several roles is told once.
  void tell() {
    for (size_t i = 0; i < best_.size(); ++i) {
      if (best_[i].map.empty()) continue;
      const auto same =
          std::find_if(e_.telling.begin(), e_.telling.end(), [&](const TellingHead& t) {
            return t.measures.layer == best_[i].measures.layer &&
                   t.measures.head == best_[i].measures.head;
          });
      if (same != e_.telling.end()) {
        same->role += fmt::format(", {}", best_[i].role);
      } else {
        e_.telling.push_back(std::move(best_[i]));
      }
    }
  }

 private:
  void compete(const HeadMeasures& measures, const HeadScores& scores) {
    std::vector<double> map;
    for (size_t i = 0; i < best_.size(); ++i) {
      const Role& role = roles()[i];
      const double value = role.value(measures);
      if (value < 0 || (!best_[i].map.empty() && value <= role.value(best_[i].measures))) continue;
      if (map.empty()) {
        const at::Tensor w = weights_of(scores).to(at::kDouble).contiguous();
        map.assign(w.data_ptr<double>(), w.data_ptr<double>() + w.numel());
      }
      best_[i] = {role.name, measures, map};
    }
  }

  ModelExplanation& e_;
  const std::vector<std::vector<int64_t>> pieces_;
  std::vector<TellingHead> best_;
};

// A map as at most 64 x 64 cells: the weight that a query of a row gives to the keys of a column.
Json small_map(const std::vector<double>& map, int64_t T) {
  const int64_t cell = (T + 63) / 64, cells = (T + cell - 1) / cell;
  std::vector<double> values(size_t(cells * cells), 0);
  for (int64_t t = 0; t < T; ++t) {
    const int64_t rows = std::min(cell, T - t / cell * cell);
    for (int64_t s = 0; s <= t; ++s)
      values[size_t(t / cell * cells + s / cell)] += map[size_t(t * T + s)] / double(rows);
  }
  for (double& x : values) x = std::round(x * 1e5) / 1e5;
  return {{"tokens_per_cell", cell}, {"cells", cells}, {"values", values}};
}

}  // namespace

HeadMeasures ModelExplanation::mean() const {
  HeadMeasures m;
  const double n = double(heads.size());
  for (const auto field : kHeadNumbers) {
    for (const HeadMeasures& h : heads) m.*field += h.*field / n;
  }
  for (const auto field : kHeadLists) {
    (m.*field).assign((heads.front().*field).size(), 0);
    for (const HeadMeasures& h : heads) {
      for (size_t i = 0; i < (m.*field).size(); ++i) (m.*field)[i] += (h.*field)[i] / n;
    }
  }
  return m;
}

Json ModelExplanation::json() const {
  Json rows = Json::array(), drawn = Json::array();
  for (const HeadMeasures& h : heads) rows.push_back(h.json());
  for (const TellingHead& t : telling)
    drawn.push_back(
        {{"role", t.role},
         {"layer", t.measures.layer},
         {"head", t.measures.head},
         {"map", small_map(t.map, T)}}
    );
  Json average = mean().json();
  average.erase("layer");
  average.erase("head");
  return {
      {"model", model},
      {"architecture", architecture},
      {"text", text},
      {"layers", layers},
      {"T", T},
      {"pieces", pieces},
      {"window", sight.window},
      {"sinks", sight.sinks},
      {"tolerance", kSeriesTolerance},
      {"mean", average},
      {"heads", rows},
      {"telling", drawn},
      {"skipped", skipped}};
}

ModelExplanation explain_model(const ModelExplainOptions& o, const TellLayer& tell) {
  check(o);
  const LoadedModel loaded = open_model(o.model);
  check(loaded, o);
  Model& model = *loaded.model;
  ModelExplanation e;
  e.model = o.model;
  e.architecture = loaded.architecture;
  e.text = find_text(o.text);
  e.layers = model.options().layers;
  e.T = o.T;
  e.sight = {o.window, o.sinks};
  const c10::NoGradGuard no_graph;
  std::vector<bool> softmax;
  for (int64_t l = 0; l < e.layers; ++l) {
    softmax.push_back(is_softmax(model, l));
    if (!softmax.back())
      e.skipped.push_back(fmt::format("{}: {}", l, mixer_at(model.options(), l).name));
  }
  if (int64_t(e.skipped.size()) == e.layers)
    throw DataError(
        "{}: no layer is causal softmax attention; `horner explain --checkpoint` looks at one "
        "layer of any mixer",
        o.model
    );
  const auto pieces = pieces_of(loaded, e.text, o);
  e.pieces = int64_t(pieces.size());

  Measurer measurer(e, pieces);
  at::Tensor in;  // of the mixer of a layer
  Context context;
  context.keep_state = false;
  context.on_input = [&](const Mixer&, const at::Tensor& x) { in = x; };
  ModelState state;
  at::Tensor x = model.begin(tensor_of(pieces), state, context), delta;
  for (int64_t l = 0; l < e.layers; ++l) {
    if (tell) tell(l, e.layers);
    State none;
    delta = model.block(l).forward(x, delta, none, context);
    if (softmax[size_t(l)]) measurer.measure(l, model.block(l).mixer().core(in));
  }
  measurer.tell();
  return e;
}

}  // namespace horner
