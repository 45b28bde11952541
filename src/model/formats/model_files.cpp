#include "model/formats/model_files.h"

#include <filesystem>

#include "core/file.h"
#include "model/formats/formats.h"

namespace horner {

Json model_files(const std::string& model) {
  namespace fs = std::filesystem;
  std::vector<std::string> paths = weight_files(model);
  if (fs::is_directory(find_model(model))) {
    const std::string folder = folder_above(paths.at(0));
    for (const char* name :
         {"config.json",
          "tokenizer.json",
          "tokenizer_config.json",
          "vocab.json",
          "merges.txt",
          "vocab.txt"})
      if (fs::exists(folder + "/" + name)) paths.push_back(folder + "/" + name);
  }
  Json list = Json::array();
  for (const std::string& path : paths)
    list.push_back(
        {{"path", path}, {"bytes", fs::file_size(path)}, {"xxh128", xxh128_of_file(path)}}
    );
  return list;
}

}  // namespace horner
