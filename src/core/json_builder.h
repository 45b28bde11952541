// JSON text to a value in linear time, with a limit on nesting, so that a hostile file costs no more than its size.
//
// nlohmann's own parser is quadratic in two ways: an ordered object is searched at each key, and a parser with a callback
// walks the whole object whenever one of its values ends.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"

namespace horner {

inline constexpr size_t kJsonDepth = 100;    // of parse_json: objects and lists inside each other
inline constexpr size_t kJsonMessage = 200;  // characters of a mistake that are shown

// J: an ordered or a sorted nlohmann JSON.
template <class J>
class JsonBuilder : public nlohmann::json_sax<J> {
 public:
  explicit JsonBuilder(size_t depth_limit) : depth_limit_(depth_limit) {}
  J take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool x) override { return add(x); }
  bool number_integer(typename J::number_integer_t x) override { return add(x); }
  bool number_unsigned(typename J::number_unsigned_t x) override { return add(x); }
  bool number_float(typename J::number_float_t x, const std::string&) override { return add(x); }
  bool string(std::string& x) override { return add(std::move(x)); }
  bool binary(typename J::binary_t&) override { return false; }  // text has none

  bool start_object(size_t) override { return open(J::object()); }
  bool start_array(size_t) override { return open(J::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    if (!open_.back().keys.insert(name).second)
      throw DataError("has the key {} twice", quoted(name.substr(0, kJsonMessage / 2)));
    key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string_view what =
        error.what();  // "[json.exception.parse_error.101] parse error .."
    // The message quotes the text, which may be anything, and may itself become JSON (a note of a run).
    const J shown = J::parse(quoted(std::string(what.substr(what.find("] ") + 2, kJsonMessage))));
    throw DataError("is not JSON: {}", shown.template get<std::string>());
  }

 private:
  struct Open {
    J* value;
    std::set<std::string> keys;  // of an object
  };

  // Bytes that are not UTF-8, and a character cut in two, become U+FFFD.
  static std::string quoted(const std::string& text) {
    return J(text).dump(-1, ' ', false, J::error_handler_t::replace);
  }

  J* place(J value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    J& parent = *open_.back().value;
    if (parent.is_array()) {
      auto& list = parent.template get_ref<typename J::array_t&>();
      list.push_back(std::move(value));
      return &list.back();
    }
    auto& members = parent.template get_ref<typename J::object_t&>();
    if constexpr (requires { members.emplace_back(key_, std::move(value)); }) {
      members.emplace_back(std::move(key_), std::move(value));  // an ordered object is a vector
      return &members.back().second;
    } else {
      return &members.emplace(std::move(key_), std::move(value)).first->second;
    }
  }

  bool add(J value) {
    place(std::move(value));
    return true;
  }

  bool open(J empty) {
    if (open_.size() == depth_limit_) throw DataError("is nested deeper than {}", depth_limit_);
    open_.push_back({place(std::move(empty)), {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const size_t depth_limit_;
  J root_;
  std::vector<Open> open_;
  std::string key_;
};

// DataError "is not JSON: ..", "is nested deeper than ..", "has the key .. twice", to which the caller adds the source.
template <class J>
J build_json(std::string_view text, size_t depth_limit) {
  JsonBuilder<J> builder(depth_limit);
  J::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace horner
