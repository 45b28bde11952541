#include "engine/cpu/open.h"

#include <malloc.h>

namespace horner {

std::unique_ptr<CpuDecoder> cpu_decoder(const LoadedModel& model, const std::string& weights) {
  GgufWeights blocks;
  std::map<std::string, std::vector<int64_t>> orders;  // the file's row of each of ours
  for (const auto& [name, own] : model.blocks) {
    std::vector<int64_t>& rows = orders[name];
    for (int64_t i = 0; i < own.rows; ++i) rows.push_back(own.row(i));
    blocks[name] = {own.tensor->type, model.gguf->blocks(*own.tensor), own.rows, own.width, rows};
  }
  auto decoder = std::make_unique<CpuDecoder>(*model.model, weights, blocks);
  // The packed weights replace the file's pages. What reading the tokenizer has freed (16 MiB) goes back to the system, too.
  for (const auto& [name, own] : model.blocks) {
    if (own.tensor->type->weights > 1) model.gguf->forget(*own.tensor);
  }
  malloc_trim(0);
  return decoder;
}

}  // namespace horner
