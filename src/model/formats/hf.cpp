// Hugging Face folders: config.json, model.safetensors or shards with an index, tokenizer.json, tokenizer_config.json,
// generation_config.json, chat_template.jinja.
#include <ATen/Functions.h>

#include <algorithm>
#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "io/safetensors.h"
#include "model/formats/loaders.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

// The tensors of a folder, in one file or several.
class HfTensors {
 public:
  explicit HfTensors(const std::string& folder) : source_(folder + "/model.safetensors") {
    const std::string index = source_ + ".index.json";
    if (fs::exists(source_)) {
      files_.push_back(Safetensors::open(source_));
      for (const std::string& name : files_[0].names()) place_[name] = 0;
    } else if (fs::exists(index)) {
      source_ = index;
      std::map<std::string, size_t> opened;
      for (const auto& [name, file] : read_index(read_file(index), index)) {
        const auto [found, missing] = opened.try_emplace(file, files_.size());
        if (missing) files_.push_back(Safetensors::open(folder + "/" + file));
        place_[name] = found->second;
      }
    } else {
      throw DataError("{}: has no model.safetensors and no index of shards", folder);
    }
  }

  const std::string& source() const { return source_; }
  size_t size() const { return place_.size(); }
  bool contains(const std::string& name) const { return place_.count(name) > 0; }
  at::Tensor get(const std::string& name) const {
    const auto found = place_.find(name);
    if (found == place_.end()) throw DataError("{}: has no tensor {}", source_, name);
    return files_[found->second].get(name);
  }

 private:
  std::string source_;
  std::vector<Safetensors> files_;
  std::map<std::string, size_t> place_;
};

Json read_object(const std::string& path) {  // empty if there is no such file
  if (!fs::exists(path)) return Json::object();
  Json json = parse_json(read_file(path), path);
  if (!json.is_object()) throw DataError("{}: must be an object", path);
  return json;
}

// The ids under a key: one, a list, or none.
std::vector<int32_t> ids_at(const Json& json, const char* key, const std::string& path) {
  const auto found = json.find(key);
  std::vector<int32_t> ids;
  if (found == json.end() || found->is_null()) return ids;
  for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX)
      throw DataError("{}: {} must be a token, got {}", path, key, to_line(id));
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

template <class T>
void read_default(const Json& json, const char* key, std::optional<T>& value) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return;
  if constexpr (std::is_same_v<T, bool>) {
    if (found->is_boolean()) value = found->get<bool>();
  } else if (found->is_number()) {
    value = found->get<T>();
  }
}

}  // namespace

// "chat_template" is a template, or a list of named ones.
std::string chat_template_in(const std::string& folder) {
  const std::string file = folder + "/chat_template.jinja";
  if (fs::exists(file)) return read_file(file);
  const Json config = read_object(folder + "/tokenizer_config.json");
  const auto found = config.find("chat_template");
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return "";
  for (const Json& item : *found) {
    if (item.is_object() && item.value("name", Json()) == "default" &&
        item.value("template", Json()).is_string())
      return item["template"].get<std::string>();
  }
  return "";
}

void read_decoding(const std::string& folder, const Json& config, LoadedModel& loaded) {
  const std::string path = folder + "/generation_config.json";
  const Json generation = read_object(path);
  loaded.chat_template = chat_template_in(folder);
  for (const auto& [json, from] :
       {std::pair{&config, folder + "/config.json"}, {&generation, path}}) {
    const std::vector<int32_t> begin = ids_at(*json, "bos_token_id", from);
    const std::vector<int32_t> ends = ids_at(*json, "eos_token_id", from);
    if (!begin.empty()) loaded.begin = begin[0];
    if (!ends.empty()) loaded.ends = ends;
  }
  GenerationDefaults& d = loaded.defaults;
  read_default(generation, "temperature", d.temperature);
  read_default(generation, "top_p", d.top_p);
  read_default(generation, "min_p", d.min_p);
  read_default(generation, "top_k", d.top_k);
  read_default(generation, "repetition_penalty", d.repetition_penalty);
  read_default(generation, "do_sample", d.sample);
  const auto has = [&](const char* file) { return fs::exists(fs::path(folder) / file); };
  if (has("tokenizer.json") || has("vocab.json") || has("vocab.txt")) {
    loaded.tokenizer = load_tokenizer(folder);
    if (!loaded.begin) loaded.begin = loaded.tokenizer->begin();
    if (loaded.ends.empty() && loaded.tokenizer->end()) loaded.ends = {*loaded.tokenizer->end()};
  }
}

LoadedModel open_hf(const std::string& folder, const OpenOptions& options) {
  const std::string path = folder + "/config.json";
  const Json json = parse_json(read_file(path), path);
  const ModelConfig config = read_config(json, path);
  const HfTensors file(folder);
  check_layers(config, file.size(), file.source());
  std::vector<Weight> weights = weights_of(config);
  const std::string prefix(hf_prefix(config));
  const bool prefixed = std::any_of(weights.begin(), weights.end(), [&](const Weight& weight) {
    return file.contains(prefix + weight.hf);
  });
  for (Weight& weight : weights) {
    if (prefixed && weight.ours != "head_weight") weight.hf = prefix + weight.hf;
    const bool moved = config.tied && weight.ours == "embedding" && !file.contains(weight.hf);
    if (moved) weight.hf = "lm_head.weight";  // some files keep the other name of a tied matrix
    if (!file.contains(weight.hf))
      throw DataError("{}: has no tensor {}", file.source(), weight.hf);
  }
  LoadedModel loaded;
  loaded.source = folder;
  loaded.architecture = config.architecture;
  loaded.context = config.context;
  loaded.model = filled_model(config, weights, options, file.source(), [&](const Weight& weight) {
    at::Tensor values = file.get(weight.hf);
    if (weight.conv1d && values.dim() == 2) values = values.t();
    if (weight.rows > 0 && values.dim() > 0 && values.size(0) == 3 * weight.rows)
      values = values.narrow(0, weight.first, weight.rows);
    return values;
  });
  read_decoding(folder, json, loaded);
  return loaded;
}

}  // namespace horner
