#include "io/tokenizer/spec.h"

#include "core/check.h"
#include "core/json.h"
#include "core/json_builder.h"

namespace horner {
namespace {

constexpr size_t kShown = 100;
constexpr size_t kDepthLimit = 16;

}  // namespace

void check_growth(size_t before, size_t after) {
  if (after > kGrowth * before + 1024)
    throw DataError("[tokenizer] its steps make a text more than {} times as long", kGrowth);
}

std::string in_quotes(const std::string& text) { return to_line(text.substr(0, kShown)); }

Object parse_object(std::string_view text) { return build_json<Object>(text, kDepthLimit); }

Spec::Spec(const Object& json, std::string name) : json_(json), name_(std::move(name)) {
  if (!json.is_object()) throw DataError("{} must be an object", name_);
  type_ = text("type", "");
  if (!type_.empty()) name_ += " " + type_.substr(0, kShown);
}

const Object* Spec::find(const char* key) {
  read_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

const Object& Spec::at(const char* key) {
  const Object* found = find(key);
  if (!found) throw DataError("{} has no {}", name_, key);
  return *found;
}

bool Spec::boolean(const char* key, bool initial) {
  const Object* found = find(key);
  if (!found) return initial;
  if (!found->is_boolean()) throw DataError("{} {} must be true or false", name_, key);
  return found->get<bool>();
}

int64_t Spec::integer(const char* key, int64_t initial) {
  const Object* found = find(key);
  if (!found) return initial;
  if (!found->is_number_integer()) throw DataError("{} {} must be an integer", name_, key);
  return found->get<int64_t>();
}

std::string Spec::text(const char* key, const std::string& initial) {
  const Object* found = find(key);
  if (!found) return initial;
  if (!found->is_string()) throw DataError("{} {} must be a string", name_, key);
  return found->get<std::string>();
}

void Spec::ignore(std::initializer_list<const char*> keys) {
  read_.insert(keys.begin(), keys.end());
}

void Spec::done() const {
  for (const auto& [key, value] : json_.items()) {
    if (!read_.contains(key)) throw DataError("{}: {} is not supported", name_, in_quotes(key));
  }
}

void Spec::refuse_type() const { throw DataError("{} is not supported", name_); }

}  // namespace horner
