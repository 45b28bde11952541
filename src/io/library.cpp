// torch.ops.horner.read_tensors, write_tensors and file_hash: files for Python, by the same code as in the program.
#include <torch/library.h>

#include "core/check.h"
#include "core/file.h"
#include "core/memory.h"
#include "io/safetensors.h"

namespace horner {
namespace {

using Names = std::vector<std::string>;

std::tuple<Names, std::vector<at::Tensor>> read_tensors(std::string path) {
  const Safetensors file = Safetensors::open(path);
  std::vector<at::Tensor> tensors;
  for (const std::string& name : file.names()) tensors.push_back(file.get(name));
  return {file.names(), tensors};
}

void write_tensors(std::string path, Names names, at::TensorList tensors) {
  HORNER_CHECK(
      names.size() == tensors.size(), "{} names for {} tensors", names.size(), tensors.size()
  );
  std::vector<std::pair<std::string, at::Tensor>> list;
  for (size_t i = 0; i < names.size(); ++i) {
    HORNER_CHECK(
        has_memory(tensors[i]),
        "{} has no numbers here: it is on the meta device, or sharded",
        names[i]
    );
    list.emplace_back(names[i], tensors[i]);
  }
  write_safetensors(path, list);
}

}  // namespace
}  // namespace horner

TORCH_LIBRARY_FRAGMENT(horner, m) {
  m.def("read_tensors(str path) -> (str[], Tensor[])", horner::read_tensors);
  m.def("write_tensors(str path, str[] names, Tensor[] tensors) -> ()", horner::write_tensors);
  m.def("file_hash(str path) -> str", [](std::string path) {
    return horner::xxh128_of_file(path);
  });
}
