#include "model/jinja/value.h"

#include <algorithm>
#include <cmath>

namespace horner::jinja {
namespace {

std::string number_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", x);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

// Python's repr of a string.
Text quoted(const Text& text) {
  const bool both = text.bytes.find('\'') != std::string::npos;
  const char quote = both && text.bytes.find('"') == std::string::npos ? '"' : '\'';
  Text all(std::string(1, quote));
  for (size_t i = 0; i < text.bytes.size(); ++i) {
    const char c = text.bytes[i];
    std::string piece(1, c);
    if (c == quote || c == '\\') piece = std::string("\\") + c;
    if (c == '\n') piece = "\\n";
    if (c == '\t') piece = "\\t";
    if (c == '\r') piece = "\\r";
    if (piece.size() == 1 && (uint8_t(c) < 0x20 || c == 0x7f)) piece = fmt::format("\\x{:02x}", c);
    all += Text(piece, text.user[i] != 0);
  }
  all += Text(std::string(1, quote));
  return all;
}

Text repr(const Value& value) { return value.text() ? quoted(*value.text()) : to_text(value); }

Text json_string(const Text& text) {
  Text all(std::string("\""));
  for (size_t i = 0; i < text.bytes.size(); ++i) {
    const char c = text.bytes[i];
    std::string piece(1, c);
    switch (c) {
      case '"': piece = "\\\""; break;
      case '\\': piece = "\\\\"; break;
      case '\n': piece = "\\n"; break;
      case '\r': piece = "\\r"; break;
      case '\t': piece = "\\t"; break;
      case '\b': piece = "\\b"; break;
      case '\f': piece = "\\f"; break;
      default:
        if (uint8_t(c) < 0x20) piece = fmt::format("\\u{:04x}", uint8_t(c));
    }
    all += Text(piece, text.user[i] != 0);
  }
  all += Text(std::string("\""));
  return all;
}

// One element of a list or an object after the other, with Python's separators.
struct JsonWriter {
  int64_t indent;
  Text all;

  void line(int64_t depth) {
    if (indent >= 0) all += Text("\n" + std::string(size_t(indent * depth), ' '));
  }
  void separate(bool first, int64_t depth) {
    if (!first) all += Text(std::string(indent >= 0 ? "," : ", "));
    line(depth);
  }
  void write(const Value& value, int64_t depth) {
    if (const List* list = value.list()) {
      all += Text(std::string("["));
      for (size_t i = 0; i < list->size(); ++i) {
        separate(i == 0, depth + 1);
        write((*list)[i], depth + 1);
      }
      if (!list->empty()) line(depth);
      all += Text(std::string("]"));
    } else if (const Dict* dict = value.dict()) {
      all += Text(std::string("{"));
      for (size_t i = 0; i < dict->size(); ++i) {
        separate(i == 0, depth + 1);
        all += json_string(Text((*dict)[i].first, true));
        all += Text(std::string(": "));
        write((*dict)[i].second, depth + 1);
      }
      if (!dict->empty()) line(depth);
      all += Text(std::string("}"));
    } else if (value.text()) {
      all += json_string(*value.text());
    } else if (const bool* b = value.get<bool>()) {
      all += Text(std::string(*b ? "true" : "false"));
    } else if (value.none()) {
      all += Text(std::string("null"));
    } else if (value.number()) {
      all += to_text(value);
    } else {
      throw Mistake("a value of type {} cannot be written as JSON", type_name(value));
    }
  }
};

}  // namespace

Text Text::part(size_t from, size_t size) const {
  Text some;
  some.bytes = bytes.substr(from, size);
  some.user = user.substr(from, size);
  return some;
}

Text& Text::operator+=(const Text& other) {
  bytes += other.bytes;
  user += other.user;
  return *this;
}

namespace {

constexpr int kMostNested = 100;

int depth_of(const Value& value) {
  if (const auto* list = value.get<std::shared_ptr<const Items<List>>>()) return (*list)->depth;
  if (const auto* dict = value.get<std::shared_ptr<const Items<Dict>>>()) return (*dict)->depth;
  return 0;
}

template <class T>
void add_child(Items<T>& items, const Value& child) {
  items.depth = std::max(items.depth, depth_of(child) + 1);
  items.has_namespace = items.has_namespace || child.has_namespace();
  if (items.depth > kMostNested) throw Mistake("values are nested more than {} deep", kMostNested);
}

}  // namespace

Value Value::of(List list) {
  Items<List> items;
  for (const Value& child : list) add_child(items, child);
  items.items = std::move(list);
  return std::make_shared<const Items<List>>(std::move(items));
}

Value Value::of(Dict dict) {
  Items<Dict> items;
  for (const auto& [key, child] : dict) add_child(items, child);
  items.items = std::move(dict);
  return std::make_shared<const Items<Dict>>(std::move(items));
}

const Text* Value::text() const {
  const auto* shared = get<std::shared_ptr<const Text>>();
  return shared ? shared->get() : nullptr;
}

const List* Value::list() const {
  const auto* shared = get<std::shared_ptr<const Items<List>>>();
  return shared ? &(*shared)->items : nullptr;
}

const Dict* Value::dict() const {
  const auto* shared = get<std::shared_ptr<const Items<Dict>>>();
  return shared ? &(*shared)->items : nullptr;
}

bool Value::has_namespace() const {
  if (const auto* list = get<std::shared_ptr<const Items<List>>>()) return (*list)->has_namespace;
  if (const auto* dict = get<std::shared_ptr<const Items<Dict>>>()) return (*dict)->has_namespace;
  return space() != nullptr;
}

Value from_json(const Json& json, bool by_user) {
  switch (json.type()) {
    case Json::value_t::boolean: return json.get<bool>();
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return json.get<int64_t>();
    case Json::value_t::number_float: return json.get<double>();
    case Json::value_t::string: return Text(json.get<std::string>(), by_user);
    case Json::value_t::array: {
      List list;
      for (const Json& item : json) list.push_back(from_json(item, by_user));
      return Value::of(std::move(list));
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.emplace_back(key, from_json(item, by_user));
      return Value::of(std::move(dict));
    }
    default: return None{};
  }
}

const Value* find(const Dict& dict, std::string_view key) {
  for (const auto& [name, value] : dict) {
    if (name == key) return &value;
  }
  return nullptr;
}

bool truth(const Value& value) {
  if (const bool* b = value.get<bool>()) return *b;
  if (value.number()) return to_double(value) != 0;
  if (value.text()) return !value.text()->bytes.empty();
  if (value.list()) return !value.list()->empty();
  if (value.dict()) return !value.dict()->empty();
  return value.space() || value.get<const Macro*>();
}

double to_double(const Value& value) {
  if (const bool* b = value.get<bool>()) return *b ? 1 : 0;
  if (const int64_t* i = value.get<int64_t>()) return double(*i);
  if (const double* d = value.get<double>()) return *d;
  throw Mistake("a number is needed, not a value of type {}", type_name(value));
}

bool equal(const Value& a, const Value& b) {
  if (a.number() && b.number()) {
    const int64_t *i = a.get<int64_t>(), *j = b.get<int64_t>();
    return i && j ? *i == *j : to_double(a) == to_double(b);
  }
  if (a.text() && b.text()) return a.text()->bytes == b.text()->bytes;
  if (a.list() && b.list()) {
    const List &x = *a.list(), &y = *b.list();
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i) {
      if (!equal(x[i], y[i])) return false;
    }
    return true;
  }
  if (a.dict() && b.dict()) {
    if (a.dict()->size() != b.dict()->size()) return false;
    for (const auto& [key, value] : *a.dict()) {
      const Value* other = find(*b.dict(), key);
      if (!other || !equal(value, *other)) return false;
    }
    return true;
  }
  return a.kind.index() == b.kind.index() && (a.none() || a.undefined());
}

std::string type_name(const Value& value) {
  static constexpr const char* kNames[] = {
      "undefined", "NoneType", "bool", "int", "float", "str", "list", "dict", "namespace", "macro"};
  return kNames[value.kind.index()];
}

Text to_text(const Value& value) {
  if (value.text()) return *value.text();
  if (const bool* b = value.get<bool>()) return Text(std::string(*b ? "True" : "False"));
  if (const int64_t* i = value.get<int64_t>()) return Text(std::to_string(*i));
  if (const double* d = value.get<double>()) return Text(number_text(*d));
  if (value.none()) return Text(std::string("None"));
  if (value.undefined()) return Text();
  Text all;
  if (const List* list = value.list()) {
    for (const Value& item : *list) {
      all += Text(std::string(all.bytes.empty() ? "[" : ", "));
      all += repr(item);
    }
    if (list->empty()) all = Text(std::string("["));
    all += Text(std::string("]"));
    return all;
  }
  if (const Dict* dict = value.dict()) {
    for (const auto& [key, item] : *dict) {
      all += Text(std::string(all.bytes.empty() ? "{" : ", "));
      all += quoted(Text(key, true));
      all += Text(std::string(": "));
      all += repr(item);
    }
    if (dict->empty()) all = Text(std::string("{"));
    all += Text(std::string("}"));
    return all;
  }
  throw Mistake("a value of type {} cannot be written", type_name(value));
}

Text to_json_text(const Value& value, int64_t indent) {
  JsonWriter writer{indent, {}};
  writer.write(value, 0);
  return writer.all;
}

size_t code_point_size(std::string_view text) {
  const auto lead = uint8_t(text[0]);
  const size_t size = lead < 0xc2 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 1;
  if (size > text.size()) return 1;
  for (size_t i = 1; i < size; ++i) {
    if ((uint8_t(text[i]) & 0xc0) != 0x80) return 1;
  }
  return size;
}

size_t code_points(std::string_view text) {
  size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(code_point_size(text));
  return count;
}

size_t offset_of(std::string_view text, size_t code_point) {
  size_t at = 0;
  for (; code_point > 0 && at < text.size(); --code_point) at += code_point_size(text.substr(at));
  return at;
}

}  // namespace horner::jinja
