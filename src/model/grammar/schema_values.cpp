// Strings and numbers of a JSON schema.
#include <algorithm>
#include <cmath>

#include "model/grammar/json_text.h"
#include "model/grammar/regex.h"
#include "model/grammar/schema_keywords.h"

namespace horner::grammar {
namespace {

const std::map<std::string, std::string> kFormats = {
    {"date", "[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"},
    {"time",
     "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]"
     ")"},
    {"uuid", "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"}};

// The pattern of a format. Days go to 28, so that each date exists.
std::string format_pattern(const Json& format, const std::string& place) {
  const std::string name = format.is_string() ? format.get<std::string>() : "";
  if (name == "date-time") return kFormats.at("date") + "T" + kFormats.at("time");
  const auto found = kFormats.find(name);
  HORNER_CHECK(
      found != kFormats.end(),
      "{}/format: {} is not supported; date, time, date-time and uuid are",
      place,
      to_line(format)
  );
  return found->second;
}

// least .. most characters, without \u escapes.
void add_characters(Nfa& nfa, int32_t from, int64_t least, int64_t most, int32_t to) {
  for (int64_t i = 0; i < std::max(least, most); ++i) {
    if (i >= least) nfa.jump(from, to);
    const int32_t next = nfa.add();
    nfa.json_character(from, Characters::all(), next);
    from = next;
  }
  if (most == kNoLimit) nfa.json_character(from, Characters::all(), from);
  nfa.jump(from, to);
}

// A bound of whole numbers; `up`: the next whole number for a minimum.
int64_t whole_bound(const Json& value, bool up, bool open, const std::string& place) {
  HORNER_CHECK(value.is_number(), "{}: must be a number, got {}", place, to_line(value));
  double x = value.get<double>();
  const double rounded = up ? std::ceil(x) : std::floor(x);
  if (open && rounded == x) x = up ? x + 1 : x - 1;
  const auto limit = double(kLargestWhole);
  HORNER_CHECK(std::abs(x) <= limit + 1, "{}: is more than {}", place, kLargestWhole);
  return int64_t(up ? std::ceil(x) : std::floor(x));
}

Bound number_bound(const Json& value, bool open, const std::string& place) {
  const bool whole = value.is_number() && std::abs(value.get<double>()) <= double(kLargestWhole) &&
                     value.get<double>() == std::floor(value.get<double>());
  HORNER_CHECK(
      whole,
      "{}: bounds of numbers with a fraction must be whole and at most {}, got {}",
      place,
      kLargestWhole,
      to_line(value)
  );
  return {int64_t(value.get<double>()), open};
}

}  // namespace

void SchemaCompiler::string(
    Nfa& nfa, int32_t from, const Json& schema, const std::string& place, int32_t to
) {
  const int64_t least = count_of(schema, "minLength", 0, place),
                most = count_of(schema, "maxLength", kNoLimit, place);
  const bool counted = least > 0 || most != kNoLimit;
  std::vector<std::pair<std::string, Search>> patterns;
  if (schema.contains("pattern")) {
    HORNER_CHECK(schema["pattern"].is_string(), "{}/pattern: must be a string", place);
    patterns.emplace_back(schema["pattern"], Search::inside);
  }
  if (schema.contains("format"))
    patterns.emplace_back(format_pattern(schema["format"], place), Search::whole);
  if (patterns.empty() && !counted) return nfa.jump(add_any_string(nfa, from), to);
  int32_t inside = nfa.text(from, "\"");
  const int32_t end = nfa.add();
  nfa.jump(nfa.text(end, "\""), to);
  if (patterns.empty()) {  // one state for each character
    HORNER_CHECK(most == kNoLimit || least <= most, "{}: minLength is above maxLength", place);
    const int32_t rule = character_rule();
    for (int64_t i = 0; i < std::max(least, most); ++i) {
      if (i >= least) nfa.jump(inside, end);
      const int32_t next = nfa.add();
      nfa.call(inside, rule, next);
      inside = next;
    }
    if (most == kNoLimit) nfa.call(inside, rule, inside);
    return nfa.jump(inside, end);
  }
  std::optional<Dfa> all;
  const auto narrow = [&](const Nfa& part) {
    const Dfa next = deterministic(part, budget_);
    all = all ? product(*all, next, Keep::both, budget_) : next;
  };
  for (const auto& [pattern, search] : patterns) {
    Nfa part(budget_);
    try {
      add_regex(part, kStart, pattern, Coding::json_string, search, kEnd);
    } catch (const UsageError& error) {
      throw UsageError("{}/pattern: {}", place, error.what());
    }
    narrow(part);
  }
  if (counted) {
    Nfa part(budget_);
    add_characters(part, kStart, least, most, kEnd);
    narrow(part);
  }
  HORNER_CHECK(has_text(*all), "{}: no string satisfies it", place);
  insert(nfa, inside, *all, end);
}

void SchemaCompiler::number(
    Nfa& nfa, int32_t from, const Json& schema, bool whole, const std::string& place, int32_t to
) {
  struct Key {
    const char* name;
    bool least, open;
  };
  constexpr Key kKeys[] = {
      {"minimum", true, false},
      {"exclusiveMinimum", true, true},
      {"maximum", false, false},
      {"exclusiveMaximum", false, true}};
  const auto multiple = schema.find("multipleOf");
  HORNER_CHECK(
      multiple == schema.end() || (whole && *multiple == 1),
      "{}/multipleOf: is not supported, but for 1 of an integer",
      place
  );
  Bound least{-kLargestWhole}, most{kLargestWhole};
  bool bounded = false;
  for (const Key& key : kKeys) {
    const auto found = schema.find(key.name);
    if (found == schema.end()) continue;
    bounded = true;
    const std::string inside = fmt::format("{}/{}", place, key.name);
    const Bound bound = whole ? Bound{whole_bound(*found, key.least, key.open, inside)}
                              : number_bound(*found, key.open, inside);
    Bound& old = key.least ? least : most;
    const bool tighter = key.least ? bound.value > old.value : bound.value < old.value;
    if (tighter || (bound.value == old.value && bound.open)) old = bound;
  }
  HORNER_CHECK(
      least.value < most.value || (least.value == most.value && !least.open && !most.open),
      "{}: no number is in its range",
      place
  );
  if (whole) return add_whole(nfa, from, least.value, most.value, to);
  if (bounded) return add_number(nfa, from, least, most, to);
  nfa.jump(add_any_number(nfa, from), to);
}

}  // namespace horner::grammar
