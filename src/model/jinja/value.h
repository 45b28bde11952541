// Values of a template: those of Python that Jinja templates of chats use.
//
// A string knows which of its bytes a user wrote. Every operation keeps that knowledge, so that the text of a user can
// never become a special token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/check.h"
#include "core/json.h"

namespace horner::jinja {

struct Text {
  std::string bytes;
  std::string user;  // as long as `bytes`: 1 where a user wrote the byte, else 0

  Text() = default;
  explicit Text(std::string text, bool by_user = false)
      : bytes(std::move(text)), user(bytes.size(), by_user ? '\1' : '\0') {}
  Text part(size_t from, size_t size = std::string::npos) const;
  Text& operator+=(const Text& other);
};

struct Value;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<std::string, Value>>;  // in the order of its keys' first use
struct Undefined {
  std::string name;
};
struct None {};
struct Namespace {  // the one value that a template changes
  Dict members;
};
struct Macro;  // of syntax.h

// A list or a dict of a template. Values are nested at most 100 deep, so that none overflows the stack.
template <class T>
struct Items {
  T items;
  int depth = 1;
  bool has_namespace = false;
};

struct Value {
  using Kind = std::variant<
      Undefined,
      None,
      bool,
      int64_t,
      double,
      std::shared_ptr<const Text>,
      std::shared_ptr<const Items<List>>,
      std::shared_ptr<const Items<Dict>>,
      std::shared_ptr<Namespace>,
      const Macro*>;
  Kind kind;

  Value() : kind(Undefined{}) {}
  template <class T>
  Value(T value) : kind(std::move(value)) {}
  Value(const char*) = delete;  // would be a bool
  Value(int) = delete;
  Value(Text text) : kind(std::make_shared<const Text>(std::move(text))) {}
  static Value of(List list);  // Mistake if it is nested too deep
  static Value of(Dict dict);
  static Value of(std::string text) { return Text(std::move(text)); }

  template <class T>
  const T* get() const {
    return std::get_if<T>(&kind);
  }
  const Text* text() const;  // null: it is of another type
  const List* list() const;
  const Dict* dict() const;
  const std::shared_ptr<Namespace>* space() const { return get<std::shared_ptr<Namespace>>(); }
  bool has_namespace() const;
  bool undefined() const { return get<Undefined>() != nullptr; }
  bool none() const { return get<None>() != nullptr; }
  bool number() const { return get<int64_t>() || get<double>() || get<bool>(); }
};

// All strings of the JSON count as written by a user if `by_user`.
Value from_json(const Json& json, bool by_user);

const Value* find(const Dict& dict, std::string_view key);
bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
std::string type_name(const Value& value);  // as Python calls it
Text to_text(const Value& value);           // Python's str()
Text to_json_text(
    const Value& value, int64_t indent = -1
);                                     // Python's json.dumps, not escaped to ASCII
double to_double(const Value& value);  // of a number

// Bytes of the code point at the beginning; a byte that is no UTF-8 counts as one.
size_t code_point_size(std::string_view text);
size_t code_points(std::string_view text);
size_t offset_of(std::string_view text, size_t code_point);  // in bytes

// Everything wrong with a template or its values. `what` names no place; the template adds its line.
struct Mistake : std::runtime_error {
  template <class... Args>
  explicit Mistake(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

}  // namespace horner::jinja
