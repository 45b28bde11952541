// Vectors of texts from an encoder, one request at a time.
#pragma once

#include <mutex>
#include <vector>

#include "io/tokenizer.h"
#include "model/model.h"

namespace horner {

class Embedder {
 public:
  Embedder(std::shared_ptr<Model> model, Tokenizer tokenizer, int64_t longest);

  std::vector<int32_t> tokens(const std::string& text) const;  // with the ids around it
  // Vectors of length 1. The texts have 1 to longest() tokens.
  std::vector<std::vector<float>> vectors(const std::vector<std::vector<int32_t>>& texts);
  int64_t longest() const { return longest_; }
  int64_t vocabulary() const { return model_->options().vocabulary; }

 private:
  std::shared_ptr<Model> model_;
  Tokenizer tokenizer_;
  const int64_t longest_;
  std::mutex mutex_;
};

}  // namespace horner
