#include "train/run_folder.h"

#include <ATen/Parallel.h>
#include <sys/stat.h>
#include <torch/version.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/initial.h"
#include "core/origin.h"
#include "core/spec.h"
#include "core/version.h"
#include "train/checkpoint.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

std::string plain(std::string_view text) {
  std::string name;
  for (const char c : TypeSpec::parse(text).name) name += std::isalnum(uint8_t(c)) ? c : '-';
  return name;
}

std::string difference_below(
    const Json& a, const Json& b, const std::string (&where)[2], const std::string& prefix
) {
  for (const auto& [key, value] : a.items()) {
    const std::string name = prefix + key;
    if (!b.is_object() || !b.contains(key))
      return fmt::format("{} = {} {}, unknown {}", name, to_line(value), where[0], where[1]);
    if (value.is_object()) {
      const std::string inner = difference_below(value, b[key], where, name + ".");
      if (!inner.empty()) return inner;
    } else if (to_line(value) != to_line(b[key])) {
      return fmt::format(
          "{} = {} {}, {} {}", name, to_line(value), where[0], to_line(b[key]), where[1]
      );
    }
  }
  return "";
}

std::string hash_in(const Json& file) {  // of text, of images
  return file.value("xxh128", file.value("hash", ""));
}

// What env.json says of the data. An older program wrote fewer keys: only those in `written` are taken.
Json data_in(const Json& env, const Json& written) {
  Json list = Json::array();
  for (const char* key : {"sources", "tokenizer", "from"}) {
    if (!written.contains(key)) continue;
    for (const Json& file : env.value(key, Json::array())) list.push_back(file);
  }
  return list;
}

Json tokenizer_of(const Task& task) {
  Json list = Json::array();
  for (const auto& [name, bytes] : task.tokenizer_files())
    list.push_back({{"path", name}, {"bytes", bytes.size()}, {"xxh128", xxh128(bytes)}});
  return list;
}

// Whether the folder holds a run from before data were part of its name, with these data. Its env.json does not name the
// tokenizer, which is last.
bool has_data(const std::string& folder, const Json& data) {
  const std::string env = folder + "/env.json";
  if (!fs::exists(env)) return false;
  return read_from(env, [&](const Json& json) {
    const Json then = data_in(json, json);
    if (json.contains("format_version") || then.empty() || then.size() > data.size()) return false;
    Json now = Json::array();
    for (size_t i = 0; i < then.size(); ++i) now.push_back(data[i]);
    return data_difference(then, now).empty();
  });
}

// A run that has begun has both descriptions. Without one of them nobody can say whether it is this run.
void check_described(const std::string& folder) {
  if (!fs::exists(folder + "/result.json") && whole_checkpoints(folder + "/checkpoints").empty())
    return;
  for (const char* file : {"/config.json", "/env.json"}) {
    if (!fs::exists(folder + file))
      throw DataError(
          "{}{}: is missing, so whether the run there is this one is not known; put it back, or "
          "take another --name",
          folder,
          file
      );
  }
}

}  // namespace

Json outcome(const TrainOptions& options) {
  Json json = to_json(options);
  for (const char* key : {"name", "out", "resume", "expect", "log", "checkpoint"}) json.erase(key);
  for (const char* key : {"shard", "sequence_parallel"}) json["train"].erase(key);
  return json;
}

std::string difference(
    const Json& a, const Json& b, const std::string& where_a, const std::string& where_b
) {
  return difference_below(a, b, {where_a, where_b}, "");
}

Json data_of(const Task& task, const std::string& from) {
  Json list = task.sources();
  for (const Json& file : tokenizer_of(task)) list.push_back(file);
  for (const Json& file : weights_in(from)) list.push_back(file);
  return list;
}

std::string data_hash(const Json& data) {
  std::string hashes;
  for (const Json& file : data) hashes += hash_in(file);
  return hashes.empty() ? "" : xxh128(hashes);
}

std::string data_difference(const Json& then, const Json& now) {
  for (size_t i = 0; i < std::min(then.size(), now.size()); ++i) {
    if (hash_in(then[i]) != hash_in(now[i]))
      return fmt::format(
          "{} has other contents now: xxh128 {} and {} bytes then, {} and {} bytes now",
          now[i].value("path", ""),
          hash_in(then[i]),
          then[i].value("bytes", 0),
          hash_in(now[i]),
          now[i].value("bytes", 0)
      );
  }
  if (then.size() < now.size()) return now[then.size()].value("path", "") + " was not there then";
  if (then.size() > now.size()) return then[now.size()].value("path", "") + " is not there now";
  return "";
}

std::string run_name(const TrainOptions& o, const Json& data, const std::string& prefix) {
  if (!o.name.empty()) return o.name;
  std::vector<std::string> mixers;
  for (const std::string& mixer : o.model.pattern) mixers.push_back(plain(mixer));
  const auto named = [&](const std::string& hash) {
    return fmt::format(
        "{}{}_{}_D{}_s{}_{:08x}",
        prefix,
        plain(o.task),
        fmt::join(mixers, "-"),
        o.model.D,
        o.seed,
        uint32_t(mix(0, to_line(outcome(o)) + hash))
    );
  };
  const std::string before = named(""), name = named(data_hash(data));
  if (before != name && !fs::exists(o.out + "/" + name) && has_data(o.out + "/" + before, data))
    return before;
  return name;
}

void open_run_folder(const std::string& folder, const TrainOptions& options, const Json& env) {
  const std::string config = folder + "/config.json", about = folder + "/env.json";
  check_described(folder);
  if (fs::exists(config)) {
    HORNER_CHECK(
        options.resume == "auto",
        "{}: the run exists, and resume = never; take another name",
        folder
    );
    const Json then = fs::exists(about) ? parse_json(read_file(about), about) : Json::object();
    check_format_version(then, about);
    const TrainOptions before = read_from(config, [](const Json& json) {
      TrainOptions o;
      from_json(o, json);
      return o;
    });
    std::string other = difference(outcome(before), outcome(options));
    HORNER_CHECK(other.empty(), "{}: holds another run: {}; take another --name", folder, other);
    if (!fs::exists(about)) return;
    other = read_from(about, [&](const Json& json) {
      return data_difference(data_in(json, json), data_in(env, json));
    });
    HORNER_CHECK(
        other.empty(), "{}: was trained on other data: {}; take another --name", folder, other
    );
    return;
  }
  make_folder(folder + "/checkpoints");
  write_file(folder + "/config.toml", to_toml(options));
  write_file(about, env.dump(2) + "\n");
  write_file(config, to_json(options).dump(2) + "\n");
}

Json environment(const TrainOptions& options, at::Device device, const Task& task) {
  return {
      {"format_version", kFormatVersion},
      {"device", describe_device(device)},
      {"threads", at::get_num_threads()},
      {"torch", TORCH_VERSION},
      {"horner", version()},
      {"commit", commit()},
      {"date", now()},
      {"seed", options.seed},
      {"sources", task.sources()},
      {"tokenizer", tokenizer_of(task)},
      {"from", weights_in(options.from)}};
}

namespace {

// Its lines without their ends. What follows the last end is half a line and left out.
std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  if (!fs::exists(path)) return lines;
  const std::string text = read_file(path);
  for (size_t start = 0, end; (end = text.find('\n', start)) != std::string::npos; start = end + 1)
    lines.push_back(text.substr(start, end - start));
  return lines;
}

Json parse_line(const std::string& text, const std::string& path) {
  Json line = parse_json(text, path);
  const auto is_number = [&](const char* key) {
    return line.contains(key) && line[key].is_number();
  };
  if (!line.is_object() || !is_number("step") || !is_number("time"))
    throw DataError("{}: has a line without step and time", path);
  return line;
}

}  // namespace

std::vector<Json> read_metrics(const std::string& folder) {
  std::vector<Json> lines;
  const std::string path = folder + "/metrics.jsonl";
  for (const std::string& text : lines_of(path)) lines.push_back(parse_line(text, path));
  return lines;
}

Metrics::Metrics(
    const std::string& folder, int64_t lines, bool tensorboard, std::vector<std::string>& notes
)
    : path_(folder + "/metrics.jsonl") {
  std::vector<std::string> texts = lines_of(path_);
  if (int64_t(texts.size()) > lines) texts.resize(size_t(lines));
  std::string kept;
  for (const std::string& text : texts) {
    try {
      all_.push_back(parse_line(text, path_));
      kept += text + "\n";
    } catch (const DataError&) {  // what a power loss left of it
    }
  }
  if (const int64_t lost = lines - int64_t(all_.size()); lost > 0)
    notes.push_back(fmt::format(
        "{}: {} of the {} lines before the checkpoint are missing or damaged; the run goes on "
        "without them",
        path_,
        lost,
        lines
    ));
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

void Metrics::sync() {
  if (::fsync(::fileno(file_.get())) != 0)
    throw RunError("{}: cannot be written: {}", path_, std::strerror(errno));
}

void Metrics::write(int64_t step, Json values) {
  Json line = {{"step", step}, {"time", seconds_since_1970()}};
  line.update(values);
  const std::string text = to_line(line) + "\n";
  struct stat status {};
  if (::fstat(::fileno(file_.get()), &status) == 0 && status.st_nlink == 0)
    throw RunError("{}: the file is gone; was the folder of the run deleted?", path_);
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
