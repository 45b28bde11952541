// Tensors in a GGUF file, which stays mapped: their blocks as they are, or their values.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>

#include "core/file.h"
#include "io/gguf_header.h"

namespace horner {

class Gguf {
 public:
  static Gguf open(const std::string& path);  // DataError when missing or malformed

  const GgufHeader& header() const { return *header_; }  // the metadata, and every tensor
  bool contains(const std::string& name) const { return tensors_.count(name) > 0; }
  const GgufTensor& tensor(const std::string& name) const;  // DataError if there is no such tensor

  // The blocks of a tensor, row after row; valid as long as file() is held.
  const std::byte* blocks(const GgufTensor& tensor) const { return file_->data() + tensor.begin; }
  const std::shared_ptr<MappedFile>& file() const { return file_; }
  // Gives back the memory of a tensor that is not needed soon; it is read from the file again on demand.
  void forget(const GgufTensor& tensor) const;

  // The values: plain types as a view that keeps the file mapped (or a copy, if it is not aligned), others as fp32.
  at::Tensor get(const std::string& name) const;
  // Of quantised types the values in fp32, row `begin` to `end`.
  at::Tensor rows(const GgufTensor& tensor, int64_t begin, int64_t end) const;

 private:
  std::shared_ptr<MappedFile> file_;
  std::shared_ptr<const GgufHeader> header_;
  std::map<std::string, const GgufTensor*> tensors_;
};

// Values of blocks, `count` weights from `blocks` on.   (count)
at::Tensor dequantise(const GgufTypeInfo& type, const std::byte* blocks, int64_t count);

}  // namespace horner
