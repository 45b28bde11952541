// SmolLM2 with its attention beyond a window replaced, without any training: ./test --label models
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/data_test.h"
#include "io/compressed.h"
#include "mixers/start.h"
#include "model/formats/formats.h"
#include "model/formats/known.h"

namespace horner {
namespace {

constexpr int64_t kLength = 1024;

// Rows of kLength + 1 tokens from a file's beginning.
at::Tensor rows_of(const LoadedModel& loaded, const std::string& path, int64_t rows) {
  const std::string text = read_decompressed(path).substr(0, size_t(rows * kLength * 8));
  const std::vector<int32_t> ids = loaded.need_tokenizer().encode(text);
  return at::tensor(at::ArrayRef<int32_t>(ids), at::kLong)
      .narrow(0, 0, rows * (kLength + 1))
      .view({rows, kLength + 1});
}

// Nats per token of the second half of each row.
double nats(Model& model, const at::Tensor& rows) {
  const int64_t half = kLength / 2;
  double sum = 0;
  for (const at::Tensor& row : rows.split(1)) {
    ModelState state;
    Context context;
    context.keep_state = false;
    const at::Tensor x = model.hidden(row.narrow(1, 0, kLength), state, context);
    const at::Tensor targets = row.narrow(1, half + 1, half).flatten();
    sum += model.loss(x.narrow(1, half, half).flatten(0, 1), targets).item<double>();
  }
  return sum / double(rows.size(0) * half);
}

// The model with another mixer in every layer: weights by name, the rest from what the layers of the teacher read.
std::shared_ptr<Model> converted(Model& teacher, const std::string& far, const at::Tensor& rows) {
  ModelOptions o = teacher.options();
  MixerSpec spec = MixerSpec::parse(o.pattern.at(0));
  spec.name = "hybrid";
  for (const auto& setting : parse_settings("window=64,sinks=4," + far))
    spec.settings.push_back(setting);
  o.pattern = {spec.text()};
  const auto model = make_model(o, 1);
  model->eval();
  auto own = model->named_parameters();
  for (auto& p : teacher.named_parameters()) own[p.key()].copy_(p.value());
  int64_t layer = 0;
  Context context;
  context.on_input = [&](const Mixer&, const at::Tensor& x) {
    model->block(layer++).mixer().calibrate(x);
  };
  ModelState state;
  teacher.hidden(rows.narrow(1, 0, kLength), state, context);
  return model;
}

// The properties that the test records are the three losses.
TEST(HybridRealModels, CentresRecoverWhatTheWindowDrops) {
  if (!std::filesystem::exists(known_model_path(*find_known_model("smollm2-135m"))))
    GTEST_SKIP() << "run first: horner get smollm2-135m";
  const std::string text = test_data("wikitext-2/test.txt.xz"),
                    other = test_data("wikitext-2/valid.txt.xz");
  HORNER_NEED(text);
  const c10::NoGradGuard no_graph;
  const LoadedModel loaded = open_model("smollm2-135m");
  const at::Tensor rows = rows_of(loaded, text, 4), measured = rows_of(loaded, other, 4);
  const double softmax = nats(*loaded.model, rows);
  const double window = nats(*converted(*loaded.model, "far=none", measured), rows);
  const double tail = nats(*converted(*loaded.model, "far=centres,count=64", measured), rows);
  RecordProperty("softmax", std::to_string(softmax));
  RecordProperty("window", std::to_string(window));
  RecordProperty("centres", std::to_string(tail));
  EXPECT_GT(window, softmax + 0.3);
  EXPECT_LT(tail, window - 0.25 * (window - softmax));
}

}  // namespace
}  // namespace horner
