#include "serve/embedder.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "model/sentence.h"

namespace horner {

Embedder::Embedder(std::shared_ptr<Model> model, Tokenizer tokenizer, int64_t longest)
    : model_(std::move(model)), tokenizer_(std::move(tokenizer)), longest_(longest) {}

std::vector<int32_t> Embedder::tokens(const std::string& text) const {
  return tokenizer_.encode(text, {.surround = true});
}

std::vector<std::vector<float>> Embedder::vectors(const std::vector<std::vector<int32_t>>& texts) {
  const std::lock_guard lock(mutex_);
  const c10::NoGradGuard no_graph;
  const at::Device device = model_->parameters().front().device();
  std::vector<std::vector<float>> all;
  constexpr size_t kTogether = 16;
  for (size_t begin = 0; begin < texts.size(); begin += kTogether) {
    const size_t count = std::min(kTogether, texts.size() - begin);
    size_t longest = 0;
    for (size_t i = 0; i < count; ++i) longest = std::max(longest, texts[begin + i].size());
    at::Tensor ids = at::zeros({int64_t(count), int64_t(longest)}, at::kLong);
    at::Tensor lengths = at::zeros({int64_t(count)}, at::kLong);
    for (size_t i = 0; i < count; ++i) {
      const std::vector<int32_t>& text = texts[begin + i];
      std::copy(text.begin(), text.end(), ids.data_ptr<int64_t>() + i * longest);
      lengths.data_ptr<int64_t>()[i] = int64_t(text.size());
    }
    const at::Tensor v = sentence_vectors(*model_, ids.to(device), lengths.to(device))
                             .to(at::kCPU, at::kFloat)
                             .contiguous();
    const float* numbers = v.const_data_ptr<float>();
    for (size_t i = 0; i < count; ++i) {
      all.emplace_back(numbers + int64_t(i) * v.size(1), numbers + int64_t(i + 1) * v.size(1));
    }
  }
  return all;
}

}  // namespace horner
