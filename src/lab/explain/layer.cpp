// A layer of a trained model, examined while the model reads.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/file.h"
#include "lab/explain/explain.h"
#include "train/checkpoint.h"

namespace horner {
namespace {

// What the mixer of a layer gets.   (1,T,D)
at::Tensor input_of_layer(Model& model, int64_t layer, const at::Tensor& input) {
  HORNER_CHECK(
      layer >= 0 && layer < model.options().layers,
      "layer must be in 0 .. {}, got {}",
      model.options().layers - 1,
      layer
  );
  const c10::NoGradGuard no_graph;
  model.eval();
  const Mixer* wanted = &model.block(layer).mixer();
  at::Tensor found;
  Context context;
  context.on_input = [&](const Mixer& mixer, const at::Tensor& x) {
    if (&mixer == wanted) found = x;
  };
  ModelState state;
  model.forward(input, state, context);
  return found;
}

at::Tensor input_for(const Model& model, const ExplainOptions& o) {
  const ModelOptions& m = model.options();
  if (m.features > 0) return at::randn({1, o.T, m.features});
  if (o.text.empty()) return at::randint(m.vocabulary, {1, o.T}, at::kLong);
  const std::vector<int32_t> read = load_tokenizer_of(o.checkpoint).encode(read_file(o.text));
  HORNER_CHECK(read.size() >= 2, "{}: has no text to read", o.text);
  const std::vector<int64_t> ids(read.begin(), read.begin() + std::min<int64_t>(o.T, read.size()));
  const int64_t largest = *std::max_element(ids.begin(), ids.end());
  HORNER_CHECK(
      largest < m.vocabulary,
      "{}: token {} is outside the model's vocabulary of {}",
      o.text,
      largest,
      m.vocabulary
  );
  return at::tensor(ids, at::kLong).unsqueeze(0);
}

const MixerType& type_of_layer(const Model& model, int64_t layer) {
  return find_mixer(mixer_at(model.options(), layer).name);
}

}  // namespace

Explanation explain_layer(const std::string& folder, int64_t layer, const at::Tensor& input) {
  const std::shared_ptr<Model> model = load_model(folder);
  const at::Tensor x = input_of_layer(*model, layer, input);
  return explain_mixer(model->block(layer).mixer(), type_of_layer(*model, layer), x);
}

Explanation explain_checkpoint(const ExplainOptions& o) {
  return explain_layer(o.checkpoint, o.layer, input_for(*load_model(o.checkpoint), o));
}

std::vector<double> map_of_layer(Model& model, int64_t layer, const at::Tensor& input) {
  const c10::NoGradGuard no_graph;
  const at::Tensor x = input_of_layer(model, layer, input);
  const at::Tensor map = model.block(layer).mixer().map(x)[0][0].to(at::kDouble).contiguous();
  std::vector<double> values;
  for (int64_t i = 0; i < map.numel(); ++i) {
    const double w = map.data_ptr<double>()[i];
    values.push_back(
        std::abs(w) < 1e-6 ? 0 : std::round(w * 1e5) / 1e5
    );  // a picture needs no more
  }
  return values;
}

}  // namespace horner
