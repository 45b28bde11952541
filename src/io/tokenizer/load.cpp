#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "io/tokenizer.h"

namespace horner {

Tokenizer load_tokenizer(const std::string& path) {
  namespace fs = std::filesystem;
  if (path == "bytes") return byte_tokenizer();
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  const fs::path folder = is_folder ? fs::path(path) : fs::path(path).parent_path();
  const std::string name = is_folder ? "" : fs::path(path).filename().string();
  const auto has = [&](const char* file) {  // and is wanted
    return (is_folder || name == file) && fs::exists(folder / file, error);
  };
  const std::string config_path = folder / "tokenizer_config.json";
  const std::string config = fs::exists(config_path, error) ? read_file(config_path) : "";
  const auto read = [&](const char* file) { return read_file(folder / file); };
  if (has("vocab.txt") && !has("tokenizer.json")) {
    return parse_bert(read("vocab.txt"), folder / "vocab.txt", config);
  }
  if ((has("vocab.json") || has("merges.txt")) && !has("tokenizer.json")) {
    return parse_gpt2(read("vocab.json"), read("merges.txt"), folder, config);
  }
  if (is_folder && !has("tokenizer.json")) {
    throw DataError(
        "{}: has no tokenizer.json, no vocab.json with merges.txt and no vocab.txt", path
    );
  }
  return parse_tokenizer_json(
      read_file(is_folder ? folder / "tokenizer.json" : fs::path(path)),
      is_folder ? folder / "tokenizer.json" : fs::path(path),
      config
  );
}

}  // namespace horner
