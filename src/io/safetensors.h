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

  // A view that keeps the file mapped; a copy where the file does not align the data. Writing to it
  // does not change the file. DataError when there is no such tensor.
  at::Tensor get(const std::string& name) const;

 private:
  std::string path_;
  std::shared_ptr<MappedFile> file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t> tensors_;  // name -> place in header_.tensors
};

// Tensors from any device and of any strides, in an order that does not depend on that of the list.
// Adds "format": "pt" to the metadata.
void write_safetensors(
    const std::string& path,
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    std::map<std::string, std::string> metadata = {}
);

}  // namespace horner
