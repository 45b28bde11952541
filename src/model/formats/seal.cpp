#include "model/formats/seal.h"

#include <filesystem>

#include "core/file.h"
#include "model/formats/checkpoint_folder.h"

namespace horner {

std::string seal_of(const std::string& folder) {
  std::map<std::string, std::string> hashes;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name != "DONE") hashes[name] = xxh128_of_file(entry.path());
  }
  const Json json = {{"format_version", kFormatVersion}, {"xxh128", hashes}};
  return json.dump(2) + "\n";
}

}  // namespace horner
