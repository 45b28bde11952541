// A part of a tokenizer.json: an object with a type. Each of its keys must be read or ignored, else it is refused.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace horner {

// Sorted: horner::Json searches linearly, too slow for a vocabulary.
using Object = nlohmann::json;

class Spec {
 public:
  // `name` is its place in the file, for the DataError: "normalizer".
  Spec(const Object& json, std::string name);

  const std::string& type() const { return type_; }
  const std::string& name() const { return name_; }  // with the type: "normalizer Replace"

  const Object* find(const char* key);  // null: absent or null
  const Object& at(const char* key);
  bool boolean(const char* key, bool initial);
  int64_t integer(const char* key, int64_t initial);
  std::string text(const char* key, const std::string& initial);

  void ignore(std::initializer_list<const char*> keys);  // keys that do not change our results
  void done() const;                                     // refuses a key that nobody has read
  [[noreturn]] void refuse_type() const;

 private:
  const Object& json_;
  std::string name_, type_;
  std::set<std::string> read_;
};

// The steps of a file may make a text 16 times as long, and a KiB more; DataError beyond that. 40 steps that replace a by aa
// would make a TiB of one letter. Unicode's forms make 11 of one.
inline constexpr size_t kGrowth = 16;
void check_growth(size_t before, size_t after);

std::string in_quotes(const std::string& text);  // cut and safe to print
Object parse_object(std::string_view text);      // DataError without a source

}  // namespace horner
