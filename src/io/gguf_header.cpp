#include "io/gguf_header.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/check.h"
#include "core/json.h"

namespace horner {
namespace {

constexpr uint32_t kMaxDims = 4;      // ggml's
constexpr size_t kMaxName = 1 << 16;  // of a key or a tensor
constexpr size_t kNameShown = 100;    // of what the file says, in an error
constexpr uint64_t kAlignment = 32;

std::string shown(std::string_view text) {
  return to_line(std::string(text.substr(0, kNameShown)));
}

// Bytes of a value; 0: of no fixed size.
size_t size_of(GgufValue::Kind kind) {
  switch (kind) {
    case GgufValue::U8:
    case GgufValue::I8:
    case GgufValue::Bool: return 1;
    case GgufValue::U16:
    case GgufValue::I16: return 2;
    case GgufValue::U32:
    case GgufValue::I32:
    case GgufValue::F32: return 4;
    case GgufValue::U64:
    case GgufValue::I64:
    case GgufValue::F64: return 8;
    case GgufValue::String:
    case GgufValue::Array: return 0;
  }
  return 0;
}

template <class T>
T number_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

class Reader {
 public:
  Reader(std::string_view file, const std::string& source) : file_(file), source_(source) {}

  template <class T>
  T read(const char* what) {
    return number_at<T>(take(sizeof(T), what), 0);
  }
  std::string_view take(uint64_t count, const char* what) {
    if (count > file_.size() - at_)
      throw DataError(
          "{}: cut short: {} of {} bytes at byte {} of {}", source_, what, count, at_, file_.size()
      );
    at_ += count;
    return file_.substr(at_ - count, count);
  }
  std::string_view text(const char* what) { return take(read<uint64_t>(what), what); }
  size_t at() const { return at_; }

  GgufValue value(const std::string& key) {
    GgufValue value{kind(key), false, 1, {}};
    if (value.kind == GgufValue::Array) {
      value.array = true;
      value.kind = kind(key);
      value.count = read<uint64_t>("length of an array");
      if (value.kind == GgufValue::Array)
        throw DataError("{}: {} is an array of arrays, which is not read", source_, shown(key));
    }
    const size_t begin = at_, size = size_of(value.kind);
    if (size > 0) {
      if (value.count > file_.size() / size)
        throw DataError("{}: cut short: {} has {} values", source_, shown(key), value.count);
      take(value.count * size, "value");
    } else {
      for (uint64_t i = 0; i < value.count; ++i) text("string");
    }
    value.bytes = file_.substr(begin, at_ - begin);
    return value;
  }

 private:
  GgufValue::Kind kind(const std::string& key) {
    const auto id = read<uint32_t>("type of a value");
    if (id > GgufValue::F64)
      throw DataError(
          "{}: {} has a value of type {}, which does not exist", source_, shown(key), id
      );
    return GgufValue::Kind(id);
  }

  std::string_view file_;
  const std::string& source_;
  size_t at_ = 0;
};

std::string read_name(Reader& reader, const char* what, const std::string& source) {
  const std::string_view name = reader.text(what);
  if (name.size() > kMaxName)
    throw DataError("{}: {} of {} bytes is too long", source, what, name.size());
  return std::string(name);
}

GgufTensor read_tensor(Reader& reader, const std::string& source) {
  GgufTensor tensor{read_name(reader, "name of a tensor", source), nullptr, {}, 0, 0};
  const std::string where = fmt::format("{}: tensor {}", source, shown(tensor.name));
  const auto dims = reader.read<uint32_t>("number of dimensions");
  if (dims < 1 || dims > kMaxDims)
    throw DataError("{} has {} dimensions, 1 to {} are known", where, dims, kMaxDims);
  uint64_t weights = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    const auto size = reader.read<uint64_t>("dimension");
    if (size < 1 || __builtin_mul_overflow(weights, size, &weights) || weights > INT64_MAX / 8)
      throw DataError("{} has dimension {} = {}", where, i, size);
    tensor.shape.insert(tensor.shape.begin(), int64_t(size));
  }
  const auto id = reader.read<uint32_t>("type of a tensor");
  tensor.type = find_gguf_type(id);
  if (!tensor.type)
    throw DataError("{} has type {}, which is not read; known: {}", where, id, gguf_type_names());
  const auto block = uint64_t(tensor.type->weights);
  if (uint64_t(tensor.shape.back()) % block != 0)
    throw DataError(
        "{} has rows of {} weights, {} has blocks of {}",
        where,
        tensor.shape.back(),
        tensor.type->name,
        block
    );
  tensor.bytes = weights / block * uint64_t(tensor.type->bytes);
  tensor.begin = reader.read<uint64_t>("offset of a tensor");
  return tensor;
}

// Turns offsets from the start of the data into offsets from the start of the file.
void place(GgufHeader& header, size_t header_end, size_t file_size) {
  const int64_t given = header.integer("general.alignment").value_or(kAlignment);
  if (given < 1 || given > 1 << 20 || (given & (given - 1)) != 0)
    throw DataError("{}: general.alignment = {} is not a power of 2", header.source, given);
  const auto alignment = uint64_t(given);
  const size_t data = (header_end + alignment - 1) / alignment * alignment;
  for (GgufTensor& tensor : header.tensors) {
    const size_t space = file_size - std::min(file_size, data);
    if (tensor.begin % alignment != 0 || tensor.begin > space ||
        tensor.bytes > space - tensor.begin)
      throw DataError(
          "{}: tensor {} has {} bytes at offset {} of data of {} bytes, aligned to {}",
          header.source,
          shown(tensor.name),
          tensor.bytes,
          tensor.begin,
          space,
          alignment
      );
    tensor.begin += data;
  }
}

// The value of a number of any kind but strings.
template <class T>
T converted(const GgufValue& value, uint64_t i) {
  const size_t at = i * size_of(value.kind);
  switch (value.kind) {
    case GgufValue::U8:
    case GgufValue::Bool: return T(number_at<uint8_t>(value.bytes, at));
    case GgufValue::I8: return T(number_at<int8_t>(value.bytes, at));
    case GgufValue::U16: return T(number_at<uint16_t>(value.bytes, at));
    case GgufValue::I16: return T(number_at<int16_t>(value.bytes, at));
    case GgufValue::U32: return T(number_at<uint32_t>(value.bytes, at));
    case GgufValue::I32: return T(number_at<int32_t>(value.bytes, at));
    case GgufValue::U64: return T(number_at<uint64_t>(value.bytes, at));
    case GgufValue::I64: return T(number_at<int64_t>(value.bytes, at));
    case GgufValue::F32: return T(number_at<float>(value.bytes, at));
    case GgufValue::F64: return T(number_at<double>(value.bytes, at));
    default: return T(0);
  }
}

bool is_float(GgufValue::Kind kind) { return kind == GgufValue::F32 || kind == GgufValue::F64; }
bool is_number(GgufValue::Kind kind) { return size_of(kind) > 0 && kind != GgufValue::Bool; }

// The value of `key` if there is one and `suits`; `must` says what it must be.
template <class Suits>
const GgufValue* find(
    const GgufHeader& header, std::string_view key, const char* must, Suits suits
) {
  const auto found = header.pairs.find(key);
  if (found == header.pairs.end()) return nullptr;
  if (!suits(found->second)) throw DataError("{}: {} must be {}", header.source, key, must);
  return &found->second;
}

}  // namespace

std::optional<std::string> GgufHeader::text(std::string_view key) const {
  const GgufValue* value = find(*this, key, "a string", [](const GgufValue& v) {
    return !v.array && v.kind == GgufValue::String;
  });
  if (!value) return {};
  return std::string(value->bytes.substr(sizeof(uint64_t)));
}

std::optional<int64_t> GgufHeader::integer(std::string_view key) const {
  const GgufValue* value = find(*this, key, "an integer of 63 bits", [](const GgufValue& v) {
    return !v.array && is_number(v.kind) && !is_float(v.kind) &&
           (v.kind != GgufValue::U64 || converted<uint64_t>(v, 0) <= uint64_t{INT64_MAX});
  });
  if (!value) return {};
  return converted<int64_t>(*value, 0);
}

std::optional<double> GgufHeader::number(std::string_view key) const {
  const GgufValue* value = find(*this, key, "a number", [](const GgufValue& v) {
    return !v.array && is_number(v.kind);
  });
  if (!value) return {};
  return converted<double>(*value, 0);
}

std::optional<bool> GgufHeader::flag(std::string_view key) const {
  const GgufValue* value = find(*this, key, "true or false", [](const GgufValue& v) {
    return !v.array && v.kind == GgufValue::Bool;
  });
  if (!value) return {};
  return converted<int>(*value, 0) != 0;
}

std::vector<std::string> GgufHeader::texts(std::string_view key) const {
  const GgufValue* value = find(*this, key, "a list of strings", [](const GgufValue& v) {
    return v.array && v.kind == GgufValue::String;
  });
  std::vector<std::string> list;
  for (size_t at = 0; value && at < value->bytes.size();) {
    const auto length = number_at<uint64_t>(value->bytes, at);
    list.emplace_back(value->bytes.substr(at + sizeof length, length));
    at += sizeof length + length;
  }
  return list;
}

std::vector<double> GgufHeader::numbers(std::string_view key) const {
  const GgufValue* value = find(*this, key, "a list of numbers", [](const GgufValue& v) {
    return v.array && is_number(v.kind);
  });
  std::vector<double> list;
  for (uint64_t i = 0; value && i < value->count; ++i) list.push_back(converted<double>(*value, i));
  return list;
}

GgufHeader parse_gguf(std::string_view file, const std::string& source) {
  if (!file.starts_with("GGUF"))
    throw DataError("{}: not a GGUF file: it does not begin with GGUF", source);
  Reader reader(file, source);
  reader.take(4, "magic");
  GgufHeader header;
  header.source = source;
  header.version = reader.read<uint32_t>("version");
  if (header.version >> 16 != 0 && (header.version & 0xffff) == 0)
    throw DataError("{}: its numbers are big-endian, which is not read", source);
  if (header.version != 2 && header.version != 3)
    throw DataError("{}: GGUF version {} is not read, 2 and 3 are", source, header.version);
  const auto tensors = reader.read<uint64_t>("number of tensors");
  const auto pairs = reader.read<uint64_t>("number of pairs");
  for (uint64_t i = 0; i < pairs; ++i) {
    const std::string key = read_name(reader, "key", source);
    if (!header.pairs.emplace(key, reader.value(key)).second)
      throw DataError("{}: has key {} twice", source, shown(key));
  }
  std::set<std::string> names;
  for (uint64_t i = 0; i < tensors; ++i) {
    header.tensors.push_back(read_tensor(reader, source));
    if (!names.insert(header.tensors.back().name).second)
      throw DataError("{}: has tensor {} twice", source, shown(header.tensors.back().name));
  }
  place(header, reader.at(), file.size());
  return header;
}

}  // namespace horner
