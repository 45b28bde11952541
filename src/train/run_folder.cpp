#include "train/run_folder.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <chrono>
#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "core/commit.h"
#include "core/device.h"
#include "core/file.h"
#include "core/initial.h"
#include "core/origin.h"
#include "core/spec.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

std::string plain(std::string_view text) {
  std::string name;
  for (const char c : TypeSpec::parse(text).name) name += std::isalnum(uint8_t(c)) ? c : '-';
  return name;
}

std::string difference(const Json& a, const Json& b, const std::string& prefix) {
  for (const auto& [key, value] : a.items()) {
    const std::string name = prefix + key;
    if (!b.contains(key)) return fmt::format("{}: {} then, unknown now", name, to_line(value));
    if (value.is_object()) {
      const std::string inner = difference(value, b[key], name + ".");
      if (!inner.empty()) return inner;
    } else if (to_line(value) != to_line(b[key])) {
      return fmt::format("{} = {} then, {} now", name, to_line(value), to_line(b[key]));
    }
  }
  return "";
}

}  // namespace

Json outcome(const TrainOptions& options) {
  Json json = to_json(options);
  for (const char* key : {"name", "out", "resume", "expect", "log", "checkpoint"}) json.erase(key);
  return json;
}

std::string run_name(const TrainOptions& o) {
  if (!o.name.empty()) return o.name;
  std::vector<std::string> mixers;
  for (const std::string& mixer : o.model.pattern) mixers.push_back(plain(mixer));
  return fmt::format(
      "{}_{}_D{}_s{}_{:08x}",
      plain(o.task),
      fmt::join(mixers, "-"),
      o.model.D,
      o.seed,
      uint32_t(mix(0, to_line(outcome(o))))
  );
}

void open_run_folder(const std::string& folder, const TrainOptions& options, const Json& env) {
  const std::string config = folder + "/config.json";
  if (fs::exists(config)) {
    HORNER_CHECK(
        options.resume == "auto",
        "{}: the run exists, and resume = never; take another name",
        folder
    );
    TrainOptions before;
    from_json(before, parse_json(read_file(config), config));
    const std::string other = difference(outcome(before), outcome(options), "");
    HORNER_CHECK(other.empty(), "{}: holds another run: {}; take another --name", folder, other);
    return;
  }
  make_folder(folder + "/checkpoints");
  write_file(folder + "/config.toml", to_toml(options));
  write_file(folder + "/env.json", env.dump(2) + "\n");
  write_file(config, to_json(options).dump(2) + "\n");
}

Json environment(const TrainOptions& options, at::Device device, const Json& sources) {
  return {
      {"device", describe_device(device)},
      {"threads", at::get_num_threads()},
      {"torch", TORCH_VERSION},
      {"horner", "0.1.0"},
      {"commit", commit()},
      {"date", now()},
      {"seed", options.seed},
      {"sources", sources}};
}

std::vector<Json> read_metrics(const std::string& folder) {
  std::vector<Json> lines;
  const std::string path = folder + "/metrics.jsonl";
  if (!fs::exists(path)) return lines;
  const std::string text = read_file(path);
  for (size_t start = 0, end; (end = text.find('\n', start)) != std::string::npos; start = end + 1)
    lines.push_back(parse_json(std::string_view(text).substr(start, end - start), path));
  return lines;
}

Metrics::Metrics(const std::string& folder, int64_t lines, bool tensorboard)
    : path_(folder + "/metrics.jsonl") {
  all_ = read_metrics(folder);
  if (int64_t(all_.size()) < lines) throw DataError("{}: has lost lines", path_);
  all_.resize(size_t(lines));
  std::string kept;
  for (const Json& line : all_) kept += to_line(line) + "\n";
  write_file(path_, kept);
  file_.reset(std::fopen(path_.c_str(), "abe"));
  if (!file_) throw RunError("{}: cannot be written: {}", path_, std::strerror(errno));
  if (!tensorboard) return;
  std::error_code error;
  fs::remove_all(folder + "/tb", error);
  make_folder(folder + "/tb");
  const double start = all_.empty() ? seconds_since_1970() : all_[0].value("time", 0.0);
  board_ = std::make_unique<TensorBoard>(folder + "/tb", start);
  for (const Json& line : all_) show(line);
}

void Metrics::write(int64_t step, Json values) {
  Json line = {{"step", step}, {"time", seconds_since_1970()}};
  line.update(values);
  const std::string text = to_line(line) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0)
    throw RunError("{}: cannot be written: {}", path_, std::strerror(errno));
  show(line);
  all_.push_back(std::move(line));
}

void Metrics::show(const Json& line) {
  if (!board_) return;
  for (const auto& [name, value] : line.items()) {
    if (!value.is_number() || name == "step" || name == "time") continue;
    board_->scalar(
        name, line["step"].get<int64_t>(), line["time"].get<double>(), value.get<double>()
    );
  }
  board_->flush();
}

}  // namespace horner
