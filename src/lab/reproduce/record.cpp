#include "lab/reproduce/record.h"

#include <filesystem>
#include <map>
#include <sstream>

#include "core/check.h"
#include "core/file.h"
#include "train/run_folder.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> lines_of(const std::string& record) {
  std::map<std::string, std::string> lines;
  if (!fs::exists(record)) return lines;
  std::istringstream text(read_file(record));
  int64_t number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded() || !json.contains("name") || !json.contains("result"))
      throw DataError("{}: line {} is no result of a run", record, number);
    lines[json.at("name")] = line;
  }
  return lines;
}

std::string line_of(const std::string& name, const std::string& folder) {
  TrainResult result = read_result(folder);
  result.folder = result.options.out = "";
  result.options.from = fs::path(result.options.from).filename();
  const auto shorten = [](Scores& scores) {
    scores.by_example.clear();
    scores.loss_by_position.clear();
  };
  shorten(result.valid);
  shorten(result.test);
  for (auto& [length, scores] : result.lengths) shorten(scores);
  Json line{{"name", name}, {"result", result.json()}};
  if (fs::exists(folder + "/env.json")) {
    read_from(folder + "/env.json", [&](const Json& env) {
      for (const char* key : {"device", "commit", "sources"}) {
        if (env.contains(key)) line["env"][key] = env.at(key);
      }
    });
    for (Json& file : line["env"]["sources"])
      file["path"] = fs::path(file.at("path").get<std::string>()).filename();
  }
  return line.dump();
}

}  // namespace

int64_t restore_runs(const std::string& record, const std::string& runs) {
  int64_t made = 0;
  for (const auto& [name, line] : lines_of(record)) {
    const std::string folder = runs + "/" + fs::path(name).filename().string();
    if (fs::exists(folder)) continue;
    make_folder(folder);
    const Json json = Json::parse(line);
    if (json.contains("env")) write_file(folder + "/env.json", json.at("env").dump() + "\n");
    write_file(folder + "/result.json", json.at("result").dump() + "\n");
    ++made;
  }
  return made;
}

int64_t record_runs(const std::string& record, const std::string& runs) {
  auto lines = lines_of(record);
  if (fs::exists(runs)) {
    for (const auto& entry : fs::directory_iterator(runs)) {
      const std::string name = entry.path().filename();
      if (!lines.contains(name) && fs::exists(entry.path() / "result.json"))
        lines[name] = line_of(name, entry.path());
    }
  }
  std::string text;
  for (const auto& [name, line] : lines) text += line + "\n";
  make_folder(folder_above(record));
  write_file(record, text);
  return int64_t(lines.size());
}

bool restored(const std::string& folder) {
  return fs::exists(folder + "/result.json") && !fs::exists(folder + "/config.json");
}

}  // namespace horner
