#include "model/formats/formats.h"

#include <ATen/Functions.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/check.h"
#include "model/formats/checkpoint_folder.h"
#include "model/formats/known.h"
#include "model/formats/loaders.h"
#include "model/size.h"
#include "nn/initial_values.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

// The one GGUF file of a folder that has no config.json; empty: none or several.
std::string gguf_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".gguf") files.push_back(entry.path());
  }
  return files.size() == 1 ? files[0] : "";
}

// Where a folder of `horner demo`, `compare` or several runs was named: the runs and models inside, at most four of them.
std::string models_below(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const std::string& place : {folder, folder + "/runs"}) {
    for (const auto& entry : fs::directory_iterator(place, error)) {
      const fs::path& path = entry.path();
      if (fs::is_directory(path / "checkpoints") || fs::exists(path / "model.safetensors"))
        found.push_back(path);
    }
  }
  if (found.empty()) return "";
  std::sort(found.begin(), found.end());
  const size_t more = found.size() - std::min<size_t>(4, found.size());
  found.resize(found.size() - more);
  return fmt::format(
      "; name a model inside it: {}{}",
      fmt::join(found, ", "),
      more > 0 ? fmt::format(" or {} more", more) : ""
  );
}

bool has_tokenizer(const fs::path& folder) {
  for (const char* file : {"tokenizer.json", "vocab.json", "vocab.txt"}) {
    if (fs::exists(folder / file)) return true;
  }
  return false;
}

bool is_ours(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!fs::exists(path)) return false;
  const Json json = parse_json(read_file(path), path);
  return json.is_object() && json.contains("horner");
}

// 8-bit numbers of quantised models mean nothing without their scales.
bool is_plain(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16 || type == at::kDouble;
}

// The type of the parameters after loading, where the file's own is not kept.
at::Tensor as_asked(const at::Tensor& x, const OpenOptions& o) {
  return (o.dtype ? x.to(*o.dtype) : x).contiguous();
}

}  // namespace

int64_t BlockRows::row(int64_t i) const {
  if (rotary_heads == 0) return first + i;
  // GGUF rotates neighbouring rows (2j, 2j + 1) of a head, we rotate rows (j, j + width/2).
  const int64_t head = rows / rotary_heads, j = i % head;
  return first + i - j + j % (head / 2) * 2 + j / (head / 2);
}

const Tokenizer& LoadedModel::need_tokenizer() const {
  if (!tokenizer) throw DataError("{}: has no tokenizer", source);
  return *tokenizer;
}

std::string find_model(const std::string& model) {
  std::error_code error;
  if (fs::exists(model, error)) return model;
  const KnownModel* known = find_known_model(model);
  if (!known)
    throw DataError(
        "{}: is no folder, no file and no model of `horner get` ({})", model, known_model_names()
    );
  const std::string path = known_model_path(*known);
  if (!fs::exists(path, error))
    throw DataError("{}: is not here yet; `horner get {}` downloads it", model, model);
  return path;
}

LoadedModel open_model(const std::string& model, const OpenOptions& options) {
  const std::string path = find_model(model);
  if (!fs::is_directory(path)) return open_gguf(path, options);
  const std::string folder = model_folder(path), config = folder + "/config.json";
  if (!fs::exists(config)) {
    const std::string file = gguf_in(folder);
    if (file.empty())
      throw DataError(
          "{}: has no config.json, and not one GGUF file{}", folder, models_below(folder)
      );
    return open_gguf(file, options);
  }
  return is_ours(folder) ? open_horner(folder, options) : open_hf(folder, options);
}

std::vector<std::string> weight_files(const std::string& model) {
  const std::string path = find_model(model);
  if (!fs::is_directory(path)) return {path};
  const std::string folder = model_folder(path), whole = folder + "/model.safetensors";
  const std::string index = whole + ".index.json", file = gguf_in(folder);
  if (fs::exists(whole) || (!fs::exists(index) && file.empty())) return {whole};
  if (!fs::exists(index)) return {file};
  std::set<std::string> shards;
  for (const auto& [name, shard] : read_index(read_file(index), index))
    shards.insert(folder + "/" + shard);
  return {shards.begin(), shards.end()};
}

ModelOptions options_of_model(const std::string& model) {
  OpenOptions shapes;
  shapes.dtype = std::nullopt;
  shapes.dequantise = false;
  return open_model(model, shapes).model->options();
}

std::optional<Tokenizer> find_tokenizer(const std::string& model) {
  const std::string name = fs::path(model).filename();
  if (model == "bytes" || name.ends_with(".json") || name.ends_with(".txt"))
    return load_tokenizer(model);
  const std::string path = find_model(model);
  if (!fs::is_directory(path)) return gguf_tokenizer(Gguf::open(path).header());
  const std::string folder = model_folder(path);
  if (has_tokenizer(folder)) return load_tokenizer(folder);
  if (is_ours(folder)) return byte_tokenizer();
  const std::string file = gguf_in(folder);
  return file.empty() ? std::nullopt : gguf_tokenizer(Gguf::open(file).header());
}

Tokenizer open_tokenizer(const std::string& model) {
  std::optional<Tokenizer> tokenizer = find_tokenizer(model);
  if (!tokenizer)
    throw DataError(
        "{}: has no tokenizer.json, no vocab.json with merges.txt and no vocab.txt", model
    );
  return *tokenizer;
}

LoadedModel open_horner(const std::string& folder, const OpenOptions& options) {
  const std::string path = folder + "/config.json";
  const Json config = parse_json(read_file(path), path);
  check_format_version(config, path);
  LoadedModel loaded;
  try {
    ModelOptions settings;
    from_json(settings, config["horner"]);
    check_size(settings);
    loaded.model = std::make_shared<Model>(settings);
  } catch (const UsageError& error) {
    throw DataError("{}: {}", path, error.what());
  }
  read_tensors(*loaded.model, folder + "/model.safetensors");
  loaded.model->eval();
  if (options.dtype && *options.dtype != at::kFloat) loaded.model->to(*options.dtype);
  loaded.source = folder;
  loaded.architecture = "horner";
  loaded.context = loaded.model->options().positions;
  read_decoding(folder, config, loaded);
  if (!loaded.tokenizer) {
    loaded.tokenizer = byte_tokenizer();
    if (!loaded.begin) loaded.begin = loaded.tokenizer->begin();
    if (loaded.ends.empty()) loaded.ends = {*loaded.tokenizer->end()};
  }
  return loaded;
}

void check_layers(const ModelConfig& config, size_t tensors, const std::string& source) {
  if (size_t(config.layers) > tensors)
    throw DataError("{}: {} tensors are too few for {} layers", source, tensors, config.layers);
}

std::shared_ptr<Model> filled_model(
    const ModelConfig& config,
    const std::vector<Weight>& weights,
    const OpenOptions& options,
    const std::string& source,
    const std::function<at::Tensor(const Weight&)>& read
) {
  const c10::NoGradGuard no_graph;
  const Unfilled shapes;
  std::shared_ptr<Model> model;
  try {
    model = std::make_shared<Model>(model_options(config));
  } catch (const UsageError& error) {
    throw DataError("{}: {}", source, error.what());
  }
  auto parameters = model->named_parameters();
  TORCH_INTERNAL_ASSERT(parameters.size() == weights.size(), "each parameter has one source");
  for (const Weight& weight : weights) {
    at::Tensor* parameter = parameters.find(weight.ours);
    TORCH_INTERNAL_ASSERT(parameter, "no parameter ", weight.ours);
    const at::Tensor values = read(weight);
    if (!values.defined()) continue;
    if (!is_plain(values.scalar_type()))
      throw DataError(
          "{}: {} has numbers of type {}; weights are F32, F16, BF16 or F64",
          source,
          weight.hf,
          c10::toString(values.scalar_type())
      );
    if (values.sizes() != parameter->sizes())
      throw DataError(
          "{}: {} must be {}, got {}",
          source,
          weight.hf,
          c10::str(parameter->sizes()),
          c10::str(values.sizes())
      );
    parameter->set_data(as_asked(values, options));
  }
  model->eval();
  return model;
}

}  // namespace horner
