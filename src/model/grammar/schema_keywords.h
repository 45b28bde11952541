// Keywords of JSON Schema that several files read.
#pragma once

#include <optional>
#include <set>

#include "model/grammar/schema.h"

namespace horner::grammar {

// Refuses keywords that are not known, and those that `key` does not stand beside; notes such as title are fine.
void check_keys(const Json& schema, const std::string& place, bool is_root);
void check_alone(const Json& schema, const std::string& key, const std::string& place);

std::string type_of(const Json& value);  // number, also for whole ones
// "type", or the types that other keywords are about; none: any. No integer beside number.
std::vector<std::string> types_of(const Json& schema, const std::string& place);
// Of enum or const; nothing if there is neither.
std::optional<std::vector<Json>> values_of(const Json& schema, const std::string& place);
std::vector<std::string> required_of(const Json& schema, const std::string& place);
int64_t count_of(const Json& schema, const char* key, int64_t otherwise, const std::string& place);
constexpr int64_t kNoLimit = -1;

}  // namespace horner::grammar
