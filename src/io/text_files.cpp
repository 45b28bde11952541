#include "io/text_files.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "io/compressed.h"
#include "io/tokenizer/unicode.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

constexpr char kGrammar[] = "grammar";
constexpr size_t kJudged = 1 << 16;
constexpr size_t kMachineText = size_t{16} << 20;  // decompressed
constexpr size_t kMachineFile = size_t{1} << 20;

std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  const auto skip = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(folder, skip, error), end; it != end;
       it.increment(error)) {
    if (error) break;
    if (it->path().filename().string().starts_with('.')) {
      if (it->is_directory(error)) it.disable_recursion_pending();
    } else if (it->is_regular_file(error) && !it->is_symlink(error)) {
      paths.push_back(it->path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Nothing when it cannot be read or is no text.
std::optional<std::string> text_in(const std::string& path, size_t limit) {
  try {
    std::string text = read_decompressed(path, limit);
    if (!text.empty() && is_text(text)) return text;
  } catch (const DataError&) {
  }
  return std::nullopt;
}

TextFile describe_file(const std::string& path) {
  return {path, int64_t(MappedFile(path).size()), xxh128_of_file(path)};
}

TextFiles describe_files(const std::vector<std::string>& paths) {
  TextFiles found;
  for (const std::string& path : paths) found.files.push_back(describe_file(path));
  return found;
}

bool is_named_text(const std::string& path) {
  return path.ends_with(".txt") || path.ends_with(".txt.gz") || path.ends_with(".txt.xz");
}

std::vector<std::string> machine_text() {
  std::vector<std::string> paths;
  size_t total = 0;
  for (const char* folder : {"/usr/share/doc", "/usr/share/man"}) {
    for (const std::string& path : files_below(folder)) {
      if (total >= kMachineText) return paths;
      const auto text = text_in(path, kMachineFile);
      if (!text) continue;
      total += text->size();
      paths.push_back(path);
    }
  }
  return paths;
}

std::vector<std::string> text_below(const std::string& folder) {
  std::vector<std::string> paths;
  for (const std::string& path : files_below(folder)) {
    if (text_in(path, kDecompressedLimit)) paths.push_back(path);
  }
  if (paths.empty()) throw DataError("{}: there is no text in this folder", folder);
  return paths;
}

}  // namespace

bool is_text(std::string_view bytes) {
  const std::string_view begin = bytes.substr(0, kJudged);
  const size_t cut = begin.size() < bytes.size() ? 3 : 0;  // may end inside a character
  return begin.find('\0') == begin.npos && utf8_prefix(begin) + cut >= begin.size();
}

int64_t TextFiles::bytes() const {
  int64_t total = 0;
  for (const TextFile& file : files) total += file.bytes;
  return total;
}

std::string TextFiles::hash() const {
  std::string all;
  for (const TextFile& file : files) all += file.hash;
  return xxh128(all);
}

Json TextFiles::json() const {
  Json list = Json::array();
  for (const TextFile& file : files) {
    list.push_back({{"path", file.path}, {"bytes", file.bytes}, {"xxh128", file.hash}});
  }
  if (grammar) list.push_back({{"path", kGrammar}, {"bytes", 0}, {"xxh128", ""}});
  return list;
}

TextFiles find_text(const std::vector<std::string>& named) {
  const char* data = std::getenv("HORNER_DATA");
  TextFiles made;
  made.grammar = true;
  if (named.size() == 1 && named[0] == kGrammar) return made;
  std::vector<std::string> paths;
  for (std::string path : named) {
    std::error_code error;
    if (data && !fs::exists(path, error) && fs::exists(fs::path(data) / path, error)) {
      path = fs::path(data) / path;
    }
    if (fs::is_directory(path, error)) {
      for (std::string& below : text_below(path)) paths.push_back(std::move(below));
    } else {
      paths.push_back(path);
    }
  }
  if (!named.empty()) return describe_files(paths);
  if (data) {
    for (const std::string& path : files_below(data)) {
      if (is_named_text(path)) paths.push_back(path);
    }
    if (!paths.empty()) return describe_files(paths);
  }
  paths = machine_text();
  return paths.empty() ? made : describe_files(paths);
}

}  // namespace horner
