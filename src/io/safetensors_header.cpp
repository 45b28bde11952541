#include "io/safetensors_header.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "core/check.h"
#include "core/json.h"
#include "core/json_builder.h"

namespace horner {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kHeaderLimit = 100'000'000;  // the reference implementation's
constexpr size_t kDepthLimit = 3;             // header, tensor, shape
constexpr size_t kNameShown = 100;            // of what the file says, in an error
constexpr char kMetadata[] = "__metadata__";

// Sorted: horner::Json searches linearly, too slow for the million keys of a hostile header.
using Object = nlohmann::json;

// A name from the file, safe to print.
std::string shown(std::string_view text) {
  return to_line(std::string(text.substr(0, kNameShown)));
}

const Object& member(const Object& info, const char* key) {
  const auto found = info.find(key);
  if (found == info.end()) throw DataError("has no {}", key);
  return *found;
}

std::vector<int64_t> read_integers(const Object& info, const char* key) {
  const Object& list = member(info, key);
  const auto fits = [](const Object& item) {
    return item.is_number_unsigned() && item.get<uint64_t>() <= uint64_t{INT64_MAX};
  };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), fits)) {
    throw DataError("{} must be a list of integers from 0", key);
  }
  return list.get<std::vector<int64_t>>();
}

// Zeros count as ones, so that strides do not overflow either.
int64_t bytes_of(const std::vector<int64_t>& shape, int64_t element) {
  int64_t most = element, bytes = element;
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(most, std::max<int64_t>(size, 1), &most)) {
      throw DataError("shape overflows 64 bits");
    }
    bytes *= size;
  }
  return bytes;
}

TensorInfo read_tensor(const std::string& name, const Object& info) {
  if (!info.is_object()) throw DataError("must be an object");
  const Object& dtype_name = member(info, "dtype");
  if (!dtype_name.is_string()) throw DataError("dtype must be a string");
  const Dtype* dtype = find_dtype(dtype_name.get_ref<const std::string&>());
  if (!dtype) throw DataError("dtype {} is not supported", shown(dtype_name.get<std::string>()));
  std::vector<int64_t> shape = read_integers(info, "shape");
  const std::vector<int64_t> offsets = read_integers(info, "data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    throw DataError("data_offsets must be [begin, end]");
  }
  const int64_t bytes = bytes_of(shape, dtype->bytes);
  if (offsets[1] - offsets[0] != bytes) {
    throw DataError("data_offsets hold {} bytes, its shape {}", offsets[1] - offsets[0], bytes);
  }
  return {
      name,
      dtype,
      std::move(shape),
      static_cast<size_t>(offsets[0]),
      static_cast<size_t>(offsets[1])};
}

std::map<std::string, std::string> read_metadata(const Object& json) {
  const auto is_string = [](const Object& value) { return value.is_string(); };
  if (json.is_null()) return {};
  if (!json.is_object() || !std::all_of(json.begin(), json.end(), is_string)) {
    throw DataError("must be an object of strings");
  }
  return json.get<std::map<std::string, std::string>>();
}

// Adds where to the DataError of what is called.
template <class Call>
auto within(const std::string& where, Call&& call) {
  try {
    return call();
  } catch (const DataError& error) {
    throw DataError("{} {}", where, error.what());
  }
}

size_t read_length(std::string_view file) {
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= uint64_t{static_cast<unsigned char>(file[i])} << (8 * i);
  }
  return length;
}

}  // namespace

const Dtype* find_dtype(std::string_view name) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

SafetensorsHeader parse_safetensors(std::string_view file, const std::string& source) {
  if (file.size() < kLengthBytes) {
    throw DataError("{}: not a safetensors file: only {} bytes long", source, file.size());
  }
  const size_t length = read_length(file);
  if (length > kHeaderLimit) {
    throw DataError("{}: not a safetensors file: header of {} bytes", source, length);
  }
  if (length > file.size() - kLengthBytes) {
    throw DataError(
        "{}: cut short: header of {} bytes in a file of {}", source, length, file.size()
    );
  }
  const std::string_view text = file.substr(kLengthBytes, length);
  if (!text.starts_with('{')) {
    throw DataError("{}: not a safetensors file: header does not begin with {{", source);
  }

  SafetensorsHeader header;
  header.data_begin = kLengthBytes + length;
  const Object json =
      within(source + ": header", [&] { return build_json<Object>(text, kDepthLimit); });
  for (const auto& [name, info] : json.items()) {
    const std::string where = fmt::format("{}: {}", source, shown(name));
    if (name == kMetadata) {
      header.metadata = within(where, [&, &info = info] { return read_metadata(info); });
    } else {
      header.tensors.push_back(within(where, [&, &name = name, &info = info] {
        return read_tensor(name, info);
      }));
    }
  }

  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  size_t end = 0;
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.begin != end) {
      throw DataError(
          "{}: {} begins at byte {} of the data, the tensor before it ends at {}",
          source,
          shown(tensor.name),
          tensor.begin,
          end
      );
    }
    end = tensor.end;
  }
  const size_t data = file.size() - header.data_begin;
  if (end != data) {
    throw DataError("{}: tensors hold {} bytes, the file has {} for them", source, end, data);
  }
  return header;
}

std::string format_safetensors(SafetensorsHeader& header) {
  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.dtype, a.name) < std::tie(b.dtype, b.name);
  });
  for (const auto& [key, value] : header.metadata) {
    HORNER_CHECK(is_utf8(key) && is_utf8(value), "metadata must be UTF-8, got {}", shown(key));
  }
  std::string text;
  const auto add = [&](const std::string& key, const Json& value) {
    text += fmt::format("{}{}:{}", text.empty() ? '{' : ',', Json(key).dump(), value.dump());
  };
  if (!header.metadata.empty()) add(kMetadata, header.metadata);
  std::set<std::string> names = {kMetadata};
  size_t end = 0;
  for (TensorInfo& tensor : header.tensors) {
    HORNER_CHECK(
        is_utf8(tensor.name) && names.insert(tensor.name).second,
        "{} cannot name a tensor: it is reserved, used twice or not UTF-8",
        shown(tensor.name)
    );
    tensor.begin = end;
    tensor.end = end += static_cast<size_t>(bytes_of(tensor.shape, tensor.dtype->bytes));
    add(tensor.name,
        {{"dtype", tensor.dtype->name},
         {"shape", tensor.shape},
         {"data_offsets", {tensor.begin, tensor.end}}});
  }
  text += text.empty() ? "{}" : "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data begins at a multiple of 8
  std::string bytes;
  for (size_t i = 0; i < kLengthBytes; ++i) bytes += static_cast<char>(text.size() >> (8 * i));
  header.data_begin = kLengthBytes + text.size();
  return bytes + text;
}

}  // namespace horner
