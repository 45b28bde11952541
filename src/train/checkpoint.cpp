#include "train/checkpoint.h"

#include <algorithm>
#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "model/formats/checkpoint_folder.h"
#include "model/formats/formats.h"
#include "model/formats/seal.h"
#include "model/formats/write_folder.h"
#include "train/finite.h"
#include "train/optimizer_file.h"
#include "train/run_folder.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

// Deletes what an interruption left: step_* without DONE. Whether DONE is there must be known: an error is not an absence.
void delete_halves(const std::string& folder) {
  if (!fs::exists(folder)) return;
  std::vector<fs::path> halves;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step_") && !fs::exists(entry.path() / "DONE"))
      halves.push_back(entry.path());
  }
  std::error_code error;
  for (const fs::path& path : halves) fs::remove_all(path, error);
}

// model.safetensors, config.json and the tokenizer's files. Processes that share the weights out gather them together.
void write_model(
    const std::string& folder, const Trained& t, const std::string& task_name, const Task& task
) {
  const bool writes = t.processes == nullptr || t.processes->first();
  const Optimizer::Averaged averaged(t.optimizer);
  NamedTensors tensors;
  if (t.gathered != nullptr) {
    tensors = t.gathered->whole_weights(writes);
    for (const auto& entry : t.model.named_buffers())
      tensors.emplace_back(entry.key(), entry.value());
  } else {
    tensors = tensors_of(t.model);
  }
  if (!writes) return;
  write_safetensors(folder + "/model.safetensors", tensors);
  Json config = folder_config(t.model.options());
  config["task"] = {{"name", task_name}, {"options", task.options()}};
  write_file(folder + "/config.json", config.dump(2) + "\n");
  for (const auto& [name, bytes] : task.tokenizer_files()) write_file(folder + "/" + name, bytes);
}

void write_optimizer(const std::string& folder, const Trained& t) {
  const Sharing& share = t.optimizer.share();
  const bool one = share.shard == Shard::none;
  const std::string name = one ? kOptimizerFile : shard_file(share.rank, share.world);
  write_safetensors(folder + "/" + name, t.optimizer.state());
  if (!one && share.rank == 0)
    write_file(folder + "/" + kOptimizerIndex, shard_index(t.optimizer).dump() + "\n");
}

}  // namespace

void keep_newest(const std::string& folder, int64_t keep) {
  std::error_code error;
  delete_halves(folder);
  const std::vector<std::string> names = whole_checkpoints(folder);
  for (size_t i = 0; i + size_t(std::max<int64_t>(keep, 1)) < names.size(); ++i) {
    fs::remove(fs::path(folder) / names[i] / "DONE", error);
    fs::remove_all(fs::path(folder) / names[i], error);
  }
}

void save_checkpoint(
    const std::string& folder,
    const Trained& trained,
    const TrainerState& state,
    const std::string& task_name,
    const Task& task,
    const Json& belongs,
    int64_t keep
) {
  const std::string path = fmt::format("{}/{}", folder, checkpoint_name(state.step));
  const std::string beside = path + ".tmp";
  std::error_code error;
  // Processes that share nothing out leave all of it to the first one.
  Processes* const together =
      trained.optimizer.share().shard == Shard::none ? nullptr : trained.processes;
  bool there = false;
  in_first(together, [&] {
    if (!fs::is_directory(folder, error)) throw RunError("{}: the folder is gone", folder);
    there = fs::exists(path + "/DONE");
    if (there) return;
    fs::remove_all(path, error);
    fs::remove_all(beside, error);
    make_folder(beside);
  });
  if (together != nullptr) there = together->sum({there ? 1.0 : 0.0})[0] > 0;
  if (there) return;
  try {
    in_every(together, [&] {
      write_model(beside, trained, task_name, task);
      write_optimizer(beside, trained);
    });
    in_first(together, [&] {
      Json trainer = {{"format_version", kFormatVersion}};
      trainer.update(to_json(state));
      trainer["belongs"] = belongs;
      write_file(beside + "/trainer.json", trainer.dump(2) + "\n");
      const std::string seal = seal_of(beside);
      fs::rename(beside, path, error);
      if (error) throw RunError("{}: cannot be written: {}", path, error.message());
      sync_folder(folder);
      write_file(path + "/DONE", seal);
      keep_newest(folder, keep);
    });
  } catch (...) {
    fs::remove_all(beside, error);
    throw;
  }
}

std::string newest_checkpoint(const std::string& folder) {
  delete_halves(folder);
  const std::vector<std::string> names = whole_checkpoints(folder);
  return names.empty() ? "" : folder + "/" + names.back();
}

std::string set_diverged_aside(const std::string& folder, int64_t step) {
  const std::string path = folder + "/" + checkpoint_name(step);
  if (newest_checkpoint(folder) != path) return "";
  const std::string aside = folder + "/diverged_" + checkpoint_name(step);
  std::error_code error;
  fs::remove_all(aside, error);
  fs::rename(path, aside, error);
  return error ? "" : aside;
}

std::string intact_checkpoint(const std::string& folder, std::vector<std::string>& notes) {
  for (;;) {
    const std::string newest = newest_checkpoint(folder);
    if (newest.empty()) return "";
    const std::string damaged = damage(newest);
    if (damaged.empty()) return newest;
    const std::string name = fs::path(newest).filename(), aside = folder + "/damaged_" + name;
    std::error_code error;
    fs::remove_all(aside, error);
    fs::rename(newest, aside, error);
    if (error) throw DataError("{}; it cannot be renamed: {}", damaged, error.message());
    notes.push_back(fmt::format("{}; {} was set aside as damaged_{}", damaged, name, name));
  }
}

TrainerState load_checkpoint(
    const std::string& checkpoint, Model& model, Optimizer& optimizer, const Json& belongs
) {
  const std::string path = checkpoint + "/trainer.json";
  const TrainerState state = read_from(path, [&](Json json) {
    check_format_version(json, path);
    const std::string other = difference(json.value("belongs", Json::object()), belongs);
    if (!other.empty()) throw DataError("{}: belongs to another run: {}", path, other);
    json.erase("format_version");
    json.erase("belongs");
    TrainerState read;
    from_json(read, json);
    if (read.step != step_of(checkpoint) || read.lines < 0 || read.tokens < 0)
      throw DataError(
          "{}: has step {}, {} lines and {} tokens", path, read.step, read.lines, read.tokens
      );
    return read;
  });
  const std::string weights = checkpoint + "/model.safetensors";
  read_tensors(model, weights, optimizer.share().shard != Shard::full);
  optimizer.load(OptimizerSource(checkpoint), Safetensors::open(weights));
  return state;
}

std::shared_ptr<Model> load_model(const std::string& folder) { return open_model(folder).model; }

Tokenizer load_tokenizer_of(const std::string& folder) { return open_tokenizer(folder); }

Json weights_in(const std::string& model) {
  Json list = Json::array();
  if (model.empty()) return list;
  for (const std::string& path : weight_files(model)) {
    const std::string hash = xxh128_of_file(path);
    list.push_back({{"path", path}, {"bytes", fs::file_size(path)}, {"xxh128", hash}});
  }
  return list;
}

void begin_with(Model& model, const std::string& from) {
  const c10::NoGradGuard no_graph;
  const LoadedModel loaded = open_model(from);
  std::map<std::string, at::Tensor> theirs;
  for (const auto& [name, tensor] : tensors_of(*loaded.model)) theirs[name] = tensor;
  bool any = false;
  for (auto& [name, tensor] : tensors_of(model)) {
    const auto found = theirs.find(name);
    if (found == theirs.end() || found->second.sizes() != tensor.sizes()) continue;
    tensor.copy_(found->second);
    any = true;
  }
  if (!any) throw DataError("{}: holds no tensor that this model has", loaded.source);
}

}  // namespace horner
