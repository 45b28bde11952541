#include "io/safetensors.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/check.h"
#include "core/nearest.h"

namespace horner {
namespace {

constexpr std::pair<std::string_view, at::ScalarType> kScalarTypes[] = {
    {"U64", at::kUInt64},
    {"I64", at::kLong},
    {"F64", at::kDouble},
    {"C64", at::kComplexFloat},
    {"F32", at::kFloat},
    {"U32", at::kUInt32},
    {"I32", at::kInt},
    {"BF16", at::kBFloat16},
    {"F16", at::kHalf},
    {"U16", at::kUInt16},
    {"I16", at::kShort},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"I8", at::kChar},
    {"U8", at::kByte},
    {"BOOL", at::kBool},
};

at::ScalarType scalar_type(const Dtype& dtype) {
  for (const auto& [name, type] : kScalarTypes) {
    if (name == dtype.name) return type;
  }
  TORCH_INTERNAL_ASSERT(false, "every Dtype has a scalar type");
}

const Dtype* dtype_of(at::ScalarType scalar) {
  for (const auto& [name, type] : kScalarTypes) {
    if (type == scalar) return find_dtype(name);
  }
  return nullptr;
}

}  // namespace

Safetensors Safetensors::open(const std::string& path) {
  Safetensors result;
  result.path_ = path;
  result.file_ = std::make_shared<MappedFile>(path);
  const auto* bytes = reinterpret_cast<const char*>(result.file_->data());
  result.header_ = parse_safetensors({bytes, result.file_->size()}, path);
  for (size_t i = 0; i < result.header_.tensors.size(); ++i) {
    result.tensors_[result.header_.tensors[i].name] = i;
  }
  return result;
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : header_.tensors) names.push_back(tensor.name);
  return names;
}

at::Tensor Safetensors::get(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw DataError("{}: {}", path_, unknown("tensor", name, names()));
  }
  const TensorInfo& info = header_.tensors[found->second];
  std::byte* data = file_->data() + header_.data_begin + info.begin;
  const auto is_boolean = [](std::byte byte) { return byte <= std::byte{1}; };
  if (info.dtype->name == "BOOL" && !std::all_of(data, data + info.end - info.begin, is_boolean)) {
    throw DataError("{}: tensor '{}' is BOOL and has bytes other than 0 and 1", path_, name);
  }
  const at::Tensor bytes = at::from_blob(
      data,
      {static_cast<int64_t>(info.end - info.begin)},
      [file = file_](void*) {},  // the view holds the mapping
      at::kByte
  );
  const bool aligned = reinterpret_cast<uintptr_t>(data) % info.dtype->bytes == 0;
  return (aligned ? bytes : bytes.clone()).view(scalar_type(*info.dtype)).view(info.shape);
}

void write_safetensors(
    const std::string& path,
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    std::map<std::string, std::string> metadata
) {
  SafetensorsHeader header;
  header.metadata = std::move(metadata);
  header.metadata.emplace("format", "pt");
  std::map<std::string, at::Tensor> by_name(tensors.begin(), tensors.end());
  for (const auto& [name, tensor] : tensors) {
    HORNER_CHECK(tensor.defined(), "{}: tensor '{}' is undefined", path, name);
    const Dtype* dtype = dtype_of(tensor.scalar_type());
    HORNER_CHECK(
        dtype && tensor.layout() == at::kStrided,
        "{}: tensor '{}' cannot be stored: {}",
        path,
        name,
        tensor.toString()
    );
    header.tensors.push_back({name, dtype, tensor.sizes().vec(), 0, 0});
  }
  const std::string head = format_safetensors(header);

  AtomicFile file(path);
  file.write(head.data(), head.size());
  for (const TensorInfo& info : header.tensors) {
    const at::Tensor plain =
        by_name.at(info.name).detach().cpu().resolve_conj().resolve_neg().contiguous();
    file.write(plain.const_data_ptr(), info.end - info.begin);
  }
  file.commit();
}

}  // namespace horner
