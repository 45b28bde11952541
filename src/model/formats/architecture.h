// Foreign architectures as models of ours: their settings, and where each parameter lies in their files.
#pragma once

#include "model/formats/config.h"
#include "model/model.h"

namespace horner {

ModelOptions model_options(const ModelConfig& config);

// Where a parameter of ours lies.
struct Weight {
  std::string ours;
  std::string hf, gguf;  // names of the tensor that holds it
  bool conv1d = false;   // HF's tensor is transposed (gpt2)
  int64_t first = 0;     // its first row in that tensor (after the transposition)
  int64_t rows = 0;      // its rows; 0: all of the tensor
  int64_t rotary_heads =
      0;  // GGUF's rows are permuted inside each of so many heads (llama); 0: not
};
std::vector<Weight> weights_of(const ModelConfig& config);

// Before the names of all tensors but the head in an HF file; may be missing there.
std::string_view hf_prefix(const ModelConfig& config);

}  // namespace horner
