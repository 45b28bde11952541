#include "model/formats/checkpoint_folder.h"

#include <algorithm>
#include <filesystem>

#include "core/file.h"
#include "io/safetensors.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";

}  // namespace

void check_format_version(const Json& json, const std::string& path) {
  const Json version = json.is_object() ? json.value("format_version", Json(0)) : Json(0);
  if (version.is_number_integer() && version <= kFormatVersion) return;
  throw VersionError(
      "{}: has format_version {}, this program knows up to {}; use the one that wrote it",
      path,
      to_line(version),
      kFormatVersion
  );
}

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

int64_t step_of(const std::string& checkpoint) {
  return std::atoll(checkpoint.c_str() + checkpoint.rfind(kPrefix) + kPrefix.size());
}

bool names_step(const std::string& name) {
  const size_t digits = name.size() - std::min(name.size(), kPrefix.size());
  return name.starts_with(kPrefix) && digits > 0 && digits <= 18 &&
         name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
}

std::vector<std::string> whole_checkpoints(const std::string& folder) {
  std::vector<std::string> names;
  if (!fs::exists(folder)) return names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (names_step(name) && fs::exists(entry.path() / "DONE")) names.push_back(name);
  }
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return step_of(a) < step_of(b);
  });
  return names;
}

std::string damage(const std::string& checkpoint, std::string_view except) {
  const std::string done = checkpoint + "/DONE";
  if (!fs::exists(done)) return "";  // a model folder of another origin
  try {
    const std::string text = read_file(done);
    const Json seal = text.empty() ? Json::object() : parse_json(text, done);
    check_format_version(seal, done);
    if (text.empty()) {
      const std::string path = checkpoint + "/trainer.json";
      const bool old = !parse_json(read_file(path), path).contains("format_version");
      return old ? "" : done + ": is empty";
    }
    if (!seal.contains("format_version")) return done + ": has no format_version";
    if (!seal.contains("xxh128") || !seal["xxh128"].is_object()) return done + ": has no checksums";
    for (const auto& [name, hash] : seal["xxh128"].items()) {
      if (name.starts_with(except)) continue;
      const std::string path = checkpoint + "/" + name;
      if (hash != xxh128_of_file(path))
        return path + ": is damaged: its checksum is not the one in DONE";
    }
    return "";
  } catch (const VersionError&) {
    throw;
  } catch (const DataError& error) {
    return error.what();
  }
}

std::string model_folder(const std::string& folder) {
  std::string chosen = folder;
  if (fs::is_directory(folder + "/checkpoints")) {
    const std::vector<std::string> names = whole_checkpoints(folder + "/checkpoints");
    if (names.empty()) throw DataError("{}: has no whole checkpoint yet", folder);
    chosen = folder + "/checkpoints/" + names.back();
  }
  const std::string damaged = damage(chosen, "optimizer");
  if (!damaged.empty()) throw DataError("{}", damaged);
  return chosen;
}

std::vector<std::pair<std::string, at::Tensor>> tensors_of(const Model& model) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const auto& entry : model.named_parameters()) all.emplace_back(entry.key(), entry.value());
  for (const auto& entry : model.named_buffers()) all.emplace_back(entry.key(), entry.value());
  return all;
}

void read_tensors(Model& model, const std::string& path, bool parameters) {
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
    if (parameters || !tensor.requires_grad()) tensor.copy_(stored);
  }
}

}  // namespace horner
