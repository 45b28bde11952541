#include "io/gguf.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/check.h"
#include "core/nearest.h"

namespace horner {
namespace {

// The type of torch that a plain type is; quantised types have none.
std::optional<at::ScalarType> plain_type(GgufType type) {
  switch (type) {
    case GgufType::F32: return at::kFloat;
    case GgufType::F16: return at::kHalf;
    case GgufType::BF16: return at::kBFloat16;
    default: return {};
  }
}

}  // namespace

Gguf Gguf::open(const std::string& path) {
  Gguf result;
  result.file_ = std::make_shared<MappedFile>(path);
  const auto* bytes = reinterpret_cast<const char*>(result.file_->data());
  result.header_ =
      std::make_shared<const GgufHeader>(parse_gguf({bytes, result.file_->size()}, path));
  for (const GgufTensor& tensor : result.header_->tensors) result.tensors_[tensor.name] = &tensor;
  return result;
}

const GgufTensor& Gguf::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return *found->second;
  std::vector<std::string> names;
  for (const auto& entry : tensors_) names.push_back(entry.first);
  throw DataError("{}: {}", header_->source, unknown("tensor", name, names));
}

void Gguf::forget(const GgufTensor& tensor) const {
  const auto page = uintptr_t(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(blocks(tensor)), end = begin + tensor.bytes;
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

at::Tensor Gguf::get(const std::string& name) const {
  const GgufTensor& info = tensor(name);
  const std::optional<at::ScalarType> type = plain_type(info.type->type);
  if (!type)
    return dequantise(*info.type, blocks(info), c10::multiply_integers(info.shape))
        .view(info.shape);
  std::byte* data = file_->data() + info.begin;
  const at::Tensor bytes = at::from_blob(
      data,
      {int64_t(info.bytes)},
      [file = file_](void*) {},  // the view holds the mapping
      at::kByte
  );
  const bool aligned = reinterpret_cast<uintptr_t>(data) % size_t(info.type->bytes) == 0;
  return (aligned ? bytes : bytes.clone()).view(*type).view(info.shape);
}

at::Tensor Gguf::rows(const GgufTensor& info, int64_t begin, int64_t end) const {
  const int64_t width = info.shape.back(),
                row_bytes = width / info.type->weights * info.type->bytes;
  const int64_t count = c10::multiply_integers(info.shape) / width;
  HORNER_CHECK(
      0 <= begin && begin <= end && end <= count, "rows {} to {} of {}", begin, end, count
  );
  return dequantise(*info.type, blocks(info) + begin * row_bytes, (end - begin) * width)
      .view({end - begin, width});
}

at::Tensor dequantise(const GgufTypeInfo& type, const std::byte* blocks, int64_t count) {
  HORNER_CHECK(count % type.weights == 0, "{} weights are no whole blocks", count);
  at::Tensor values = at::empty({count}, at::kFloat);
  auto* to = values.mutable_data_ptr<float>();
  const int64_t grain = std::max<int64_t>(1, 16384 / type.weights);
  at::parallel_for(0, count / type.weights, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      type.dequantise(blocks + i * type.bytes, to + i * type.weights);
  });
  return values;
}

}  // namespace horner
