#include "train/checkpoint.h"

#include <algorithm>
#include <filesystem>

#include "core/check.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

std::vector<std::pair<std::string, at::Tensor>> tensors_of(const Model& model) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const auto& entry : model.named_parameters()) all.emplace_back(entry.key(), entry.value());
  for (const auto& entry : model.named_buffers()) all.emplace_back(entry.key(), entry.value());
  return all;
}

void read_tensors(Model& model, const std::string& path) {
  const c10::NoGradGuard no_graph;
  const Safetensors file = Safetensors::open(path);
  for (auto& [name, tensor] : tensors_of(model)) {
    const at::Tensor stored = file.get(name);
    if (stored.sizes() != tensor.sizes())
      throw DataError(
          "{}: tensor '{}' must be {}, got {}",
          path,
          name,
          c10::str(tensor.sizes()),
          c10::str(stored.sizes())
      );
    tensor.copy_(stored);
  }
}

Json config_of(const ModelOptions& o, const Json& task) {
  return {
      {"architectures", {"Horner"}},
      {"model_type", "horner"},
      {"hidden_size", o.D},
      {"num_hidden_layers", o.layers},
      {"vocab_size", o.vocabulary},
      {"tie_word_embeddings", o.tied},
      {"max_position_embeddings", o.positions},
      {"torch_dtype", "float32"},
      {"horner", to_json(o)},
      {"task", task}};
}

// A run's newest checkpoint, or the folder itself.
std::string model_folder(const std::string& folder) {
  if (!fs::is_directory(folder + "/checkpoints")) return folder;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder + "/checkpoints")) {
    if (fs::exists(entry.path() / "DONE")) names.push_back(entry.path());
  }
  if (names.empty()) throw DataError("{}: has no whole checkpoint yet", folder);
  return *std::max_element(names.begin(), names.end());
}

// Names of the checkpoints, oldest first. Everything else that a run puts there is deleted.
std::vector<std::string> whole_ones(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("step_")) continue;
    if (fs::exists(entry.path() / "DONE")) {
      names.push_back(name);
    } else {
      fs::remove_all(entry.path(), error);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("step_{:08}", step); }

void save_checkpoint(
    const std::string& folder,
    Model& model,
    Optimizer& optimizer,
    const TrainerState& state,
    const std::string& task_name,
    const Task& task,
    int64_t keep
) {
  const std::string path = fmt::format("{}/{}", folder, checkpoint_name(state.step));
  const std::string beside = path + ".tmp";
  std::error_code error;
  if (fs::exists(path + "/DONE")) return;
  fs::remove_all(path, error);
  fs::remove_all(beside, error);
  make_folder(beside);
  try {
    {
      const Optimizer::Averaged averaged(optimizer);
      write_safetensors(beside + "/model.safetensors", tensors_of(model));
    }
    const Json about = {{"name", task_name}, {"options", task.options()}};
    write_file(beside + "/config.json", config_of(model.options(), about).dump(2) + "\n");
    for (const auto& [name, bytes] : task.tokenizer_files()) write_file(beside + "/" + name, bytes);
    write_safetensors(beside + "/optimizer.safetensors", optimizer.state());
    write_file(beside + "/trainer.json", to_json(state).dump(2) + "\n");
    fs::rename(beside, path, error);
    if (error) throw RunError("{}: cannot be written: {}", path, error.message());
    write_file(path + "/DONE", "");
  } catch (...) {
    fs::remove_all(beside, error);
    throw;
  }
  std::vector<std::string> names = whole_ones(folder);
  for (size_t i = 0; i + size_t(std::max<int64_t>(keep, 1)) < names.size(); ++i) {
    fs::remove(fs::path(folder) / names[i] / "DONE", error);
    fs::remove_all(fs::path(folder) / names[i], error);
  }
}

std::string newest_checkpoint(const std::string& folder) {
  const std::vector<std::string> names = whole_ones(folder);
  return names.empty() ? "" : folder + "/" + names.back();
}

TrainerState load_checkpoint(const std::string& checkpoint, Model& model, Optimizer& optimizer) {
  TrainerState state;
  const std::string path = checkpoint + "/trainer.json";
  from_json(state, parse_json(read_file(path), path));
  read_tensors(model, checkpoint + "/model.safetensors");
  optimizer.load(Safetensors::open(checkpoint + "/optimizer.safetensors"));
  return state;
}

std::shared_ptr<Model> load_model(const std::string& folder) {
  const std::string from = model_folder(folder), path = from + "/config.json";
  const Json config = parse_json(read_file(path), path);
  if (!config.is_object() || !config.contains("horner"))
    throw DataError("{}: is not the configuration of a Horner model", path);
  ModelOptions options;
  from_json(options, config["horner"]);
  auto model = std::make_shared<Model>(options);
  read_tensors(*model, from + "/model.safetensors");
  model->eval();
  return model;
}

Tokenizer load_tokenizer_of(const std::string& folder) {
  const std::string from = model_folder(folder);
  for (const char* file : {"tokenizer.json", "vocab.json", "vocab.txt"}) {
    if (fs::exists(fs::path(from) / file)) return load_tokenizer(from);
  }
  return byte_tokenizer();
}

void begin_with(Model& model, const std::string& folder) {
  const c10::NoGradGuard no_graph;
  const std::string path = model_folder(folder) + "/model.safetensors";
  const Safetensors file = Safetensors::open(path);
  bool any = false;
  for (auto& [name, tensor] : tensors_of(model)) {
    if (!file.contains(name) || file.get(name).sizes() != tensor.sizes()) continue;
    tensor.copy_(file.get(name));
    any = true;
  }
  if (!any) throw DataError("{}: holds no tensor that this model has", path);
}

}  // namespace horner
