// Tensors in a safetensors file: read as views of the mapped file, written whole or not at all.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "io/safetensors_header.h"

namespace horner {

class Safetensors {
 public:
  static Safetensors open(const std::string& path);  // DataError when missing or malformed

  std::vector<std::string> names() const;  // in the order of their data
  bool contains(const std::string& name) const { return tensors_.count(name) > 0; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  // A view that keeps the file mapped, or a copy if the data are not aligned in the file. Writing to it does not change the
  // file. DataError if there is no such tensor.
  at::Tensor get(const std::string& name) const;

 private:
  std::string path_;
  std::shared_ptr<MappedFile> file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t> tensors_;  // name -> place in header_.tensors
};

// Writes tensors of any device and strides. Their order in the file does not depend on the order of the list.
// Adds "format": "pt" to the metadata.
void write_safetensors(
    const std::string& path,
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    std::map<std::string, std::string> metadata = {}
);

}  // namespace horner
