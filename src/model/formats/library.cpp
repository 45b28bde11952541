// torch.ops.horner.open_model: a MODEL of any format for Python, by the same code as in the program.
#include <torch/library.h>

#include "core/json.h"
#include "model/formats/checkpoint_folder.h"
#include "model/formats/formats.h"

namespace horner {
namespace {

using Names = std::vector<std::string>;

// The settings of the model as JSON, and its tensors by the names that a checkpoint has.
std::tuple<std::string, Names, std::vector<at::Tensor>> open(
    std::string path, at::ScalarType dtype
) {
  OpenOptions options;
  options.dtype = dtype;
  const LoadedModel loaded = open_model(path, options);
  Names names;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : tensors_of(*loaded.model)) {
    names.push_back(name);
    tensors.push_back(tensor.detach());
  }
  return {to_line(to_json(loaded.model->options())), names, tensors};
}

}  // namespace
}  // namespace horner

TORCH_LIBRARY_FRAGMENT(horner, m) {
  m.def(
      "open_model(str model, ScalarType dtype) -> (str options, str[] names, Tensor[] tensors)",
      horner::open
  );
}
