// Filters, tests, methods and functions: those of Jinja and Python that templates of chats use.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <map>

#include "model/jinja/interpreter.h"

namespace horner::jinja {
namespace {

// Python's white space, of which the first code point of `text` may be one: its bytes, else 0.
size_t space_size(std::string_view text) {
  const size_t size = code_point_size(text);
  const std::string_view c = text.substr(0, size);
  if (size == 1)
    return std::string_view(" \t\n\r\v\f\x1c\x1d\x1e\x1f").find(c) != std::string_view::npos;
  for (const std::string_view space :
       {"\u0085",
        "\u00a0",
        "\u1680",
        "\u2000",
        "\u2001",
        "\u2002",
        "\u2003",
        "\u2004",
        "\u2005",
        "\u2006",
        "\u2007",
        "\u2008",
        "\u2009",
        "\u200a",
        "\u2028",
        "\u2029",
        "\u202f",
        "\u205f",
        "\u3000"}) {
    if (c == space) return size;
  }
  return 0;
}

// Which code points strip() removes: white space, or those of a given string.
std::function<bool(std::string_view)> removable(const Value* characters) {
  if (!characters || characters->none())
    return [](std::string_view c) { return space_size(c) > 0; };
  if (!characters->text()) throw Mistake("strip takes a string");
  return [set = characters->text()->bytes](std::string_view c) {
    return set.find(c.substr(0, code_point_size(c))) != set.npos;
  };
}

Text strip(const Text& text, const Value* characters, bool left, bool right) {
  const auto remove = removable(characters);
  const std::string_view all = text.bytes;
  size_t begin = 0, end = all.size();
  while (left && begin < end && remove(all.substr(begin)))
    begin += code_point_size(all.substr(begin));
  while (right && end > begin) {
    size_t last = end - 1;
    while (last > begin && (uint8_t(all[last]) & 0xc0) == 0x80) --last;
    if (!remove(all.substr(last, end - last))) break;
    end = last;
  }
  return text.part(begin, end - begin);
}

// ASCII letters; others stay as they are.
template <class F>
Text map_letters(Text text, F&& f) {
  char before = ' ';
  for (char& c : text.bytes) {
    const char old = c;
    if (uint8_t(c) < 0x80) c = char(f(c, before));
    before = old;
  }
  return text;
}

Text upper(const Text& text) {
  return map_letters(text, [](char c, char) { return std::toupper(c); });
}
Text lower(const Text& text) {
  return map_letters(text, [](char c, char) { return std::tolower(c); });
}
Text title(const Text& text) {
  return map_letters(text, [](char c, char before) {
    return std::isalpha(uint8_t(before)) ? std::tolower(c) : std::toupper(c);
  });
}
Text capitalize(const Text& text) {
  Text made = lower(text);
  if (!made.bytes.empty() && uint8_t(made.bytes[0]) < 0x80)
    made.bytes[0] = char(std::toupper(made.bytes[0]));
  return made;
}

Text replace(const Text& text, const Text& from, const Text& to, int64_t most, Meter& meter) {
  if (from.bytes.empty()) throw Mistake("replace takes no empty string");
  Text made;
  size_t at = 0;
  while (most != 0) {
    const size_t found = text.bytes.find(from.bytes, at);
    if (found == std::string::npos) break;
    meter.made(to.bytes.size() + found - at);
    made += text.part(at, found - at);
    made += to;
    at = found + from.bytes.size();
    --most;
  }
  made += text.part(at);
  return made;
}

List split(const Text& text, const Value* separator, int64_t most, Meter& meter) {
  List parts;
  meter.made(text.bytes.size());
  size_t at = 0;
  if (separator && !separator->none()) {
    if (!separator->text() || separator->text()->bytes.empty())
      throw Mistake("split takes a string that is not empty");
    const std::string& by = separator->text()->bytes;
    for (; most != 0; --most) {
      const size_t found = text.bytes.find(by, at);
      if (found == std::string::npos) break;
      meter.step();
      parts.push_back(text.part(at, found - at));
      at = found + by.size();
    }
    parts.push_back(text.part(at));
    return parts;
  }
  const std::string_view all = text.bytes;
  for (;;) {
    while (at < all.size() && space_size(all.substr(at)) > 0) at += space_size(all.substr(at));
    if (at == all.size()) return parts;
    meter.step();
    size_t end = at;
    if (most-- == 0) {
      parts.push_back(strip(text.part(at), nullptr, false, true));
      return parts;
    }
    while (end < all.size() && space_size(all.substr(end)) == 0)
      end += code_point_size(all.substr(end));
    parts.push_back(text.part(at, end - at));
    at = end;
  }
}

const Text& text_of(const Value* value, std::string_view what) {
  if (!value || !value->text()) throw Mistake("{} takes a string", what);
  return *value->text();
}

int64_t integer_of(const Value* value, int64_t otherwise) {
  if (!value || value->none()) return otherwise;
  if (const int64_t* i = value->get<int64_t>()) return *i;
  throw Mistake("a whole number is needed, not a value of type {}", type_name(*value));
}

Text join(const List& list, const Text& between, const Value* attribute, Meter& meter) {
  Text all;
  for (size_t i = 0; i < list.size(); ++i) {
    const Text one = to_text(attribute ? item_of(list[i], *attribute) : list[i]);
    meter.made(one.bytes.size() + between.bytes.size());
    if (i > 0) all += between;
    all += one;
  }
  return all;
}

int64_t length(const Value& value) {
  if (value.text()) return int64_t(code_points(value.text()->bytes));
  if (value.list()) return int64_t(value.list()->size());
  if (value.dict()) return int64_t(value.dict()->size());
  if (value.undefined()) return 0;
  throw Mistake("a value of type {} has no length", type_name(value));
}

List pairs_of(const Dict& dict) {
  List pairs;
  for (const auto& [key, value] : dict) pairs.push_back(Value::of(List{Text(key, true), value}));
  return pairs;
}

// selectattr, rejectattr, select, reject: those elements for which a test holds.
Value select(const Value& value, const Arguments& a, bool by_attribute, bool wanted) {
  List kept;
  const size_t first = by_attribute ? 1 : 0;
  Arguments rest;
  for (size_t i = first + 1; i < a.values.size(); ++i) rest.values.push_back(a.values[i]);
  const Value* test = a.get(first, "test");
  for (const Value& element : elements_of(value)) {
    const Value subject = by_attribute
                              ? item_of(element, Text(text_of(a.get(0, "attribute"), "selectattr")))
                              : element;
    const bool holds =
        test ? call_test(text_of(test, "select").bytes, subject, rest) : truth(subject);
    if (holds == wanted) kept.push_back(element);
  }
  return Value::of(std::move(kept));
}

Value map_filter(const Value& value, const Arguments& a, Meter& meter) {
  List made;
  const Value* attribute = a.get(size_t(-1), "attribute");
  for (const Value& element : elements_of(value)) {
    meter.step();
    made.push_back(
        attribute ? item_of(element, *attribute)
                  : call_filter(text_of(a.get(0, "filter"), "map").bytes, element, {}, meter)
    );
  }
  return Value::of(std::move(made));
}

Value unique_filter(const Value& value, const Arguments&, Meter& meter) {
  List kept;
  for (const Value& element : elements_of(value)) {
    meter.step(int64_t(kept.size()) + 1);
    const bool seen = std::any_of(kept.begin(), kept.end(), [&](const Value& other) {
      return equal(element, other);
    });
    if (!seen) kept.push_back(element);
  }
  return Value::of(std::move(kept));
}

Value default_filter(const Value& value, const Arguments& a, Meter&) {
  const Value* also_false = a.get(1, "boolean");
  const bool missing = value.undefined() || (also_false && truth(*also_false) && !truth(value));
  const Value* other = a.get(0, "default_value");
  return missing ? other ? *other : Value(Text()) : value;
}

Value to_integer(const Value& value) {
  if (value.number()) return int64_t(std::clamp(to_double(value), -9e15, 9e15));
  if (!value.text()) return int64_t{0};
  return int64_t(std::strtoll(value.text()->bytes.substr(0, 18).c_str(), nullptr, 10));
}

Value trim_filter(const Value& value, const Arguments& a, Meter&) {
  return strip(to_text(value), a.get(0, "chars"), true, true);
}

Value to_json_filter(const Value& value, const Arguments& a, Meter& meter) {
  const int64_t indent = integer_of(a.get(size_t(-1), "indent"), -1);
  if (indent > 16) throw Mistake("tojson indents by at most 16");
  Text text = to_json_text(value, indent);
  meter.made(text.bytes.size());
  return text;
}

Value join_filter(const Value& value, const Arguments& a, Meter& meter) {
  const Value* between = a.get(0, "d");
  return join(
      elements_of(value), between ? to_text(*between) : Text(), a.get(1, "attribute"), meter
  );
}

Value first_of(const Value& value) {
  const List list = elements_of(value);
  return list.empty() ? Value() : list.front();
}

Value last_of(const Value& value) {
  const List list = elements_of(value);
  return list.empty() ? Value() : list.back();
}

Value reverse_filter(const Value& value, const Arguments&, Meter& meter) {
  List list = elements_of(value);
  std::reverse(list.begin(), list.end());
  return value.text() ? Value(join(list, Text(), nullptr, meter)) : Value::of(std::move(list));
}

Value items_of(const Value& value) {
  if (!value.dict() && !value.undefined()) throw Mistake("items takes a dict");
  return Value::of(value.dict() ? pairs_of(*value.dict()) : List());
}

Value replace_with(const Text& text, const Arguments& a, Meter& meter) {
  return replace(
      text,
      text_of(a.get(0, "old"), "replace"),
      text_of(a.get(1, "new"), "replace"),
      integer_of(a.get(2, "count"), -1),
      meter
  );
}

using Filter = std::function<Value(const Value&, const Arguments&, Meter&)>;

// A filter that takes a value alone, or its text.
Filter of_value(Value (*call)(const Value&)) {
  return [call](const Value& v, const Arguments&, Meter&) { return call(v); };
}
Filter of_text(Text (*call)(const Text&)) {
  return [call](const Value& v, const Arguments&, Meter&) -> Value { return call(to_text(v)); };
}
Filter selecting(bool by_attribute, bool wanted) {
  return [=](const Value& v, const Arguments& a, Meter&) {
    return select(v, a, by_attribute, wanted);
  };
}

const std::map<std::string, Filter, std::less<>>& filters() {
  static const std::map<std::string, Filter, std::less<>> list = {
      {"trim", trim_filter},
      {"upper", of_text(upper)},
      {"lower", of_text(lower)},
      {"title", of_text(title)},
      {"capitalize", of_text(capitalize)},
      {"string", of_text([](const Text& text) { return text; })},
      {"safe", of_value([](const Value& value) { return value; })},
      {"length", of_value([](const Value& value) -> Value { return length(value); })},
      {"count", of_value([](const Value& value) -> Value { return length(value); })},
      {"default", default_filter},
      {"d", default_filter},
      {"int", of_value(to_integer)},
      {"list", of_value([](const Value& value) { return Value::of(elements_of(value)); })},
      {"unique", unique_filter},
      {"map", map_filter},
      {"select", selecting(false, true)},
      {"reject", selecting(false, false)},
      {"selectattr", selecting(true, true)},
      {"rejectattr", selecting(true, false)},
      {"tojson", to_json_filter},
      {"join", join_filter},
      {"first", of_value(first_of)},
      {"last", of_value(last_of)},
      {"reverse", reverse_filter},
      {"items", of_value(items_of)},
      {"replace",
       [](const Value& v, const Arguments& a, Meter& m) { return replace_with(to_text(v), a, m); }},
  };
  return list;
}

bool starts_or_ends(const Text& text, const Value* with, bool end) {
  const List candidates = with && with->list() ? *with->list() : List{with ? *with : Value()};
  return std::any_of(candidates.begin(), candidates.end(), [&](const Value& one) {
    const std::string& part = text_of(&one, "startswith").bytes;
    return end ? text.bytes.ends_with(part) : text.bytes.starts_with(part);
  });
}

Value text_method(const std::string& name, const Text& text, const Arguments& a, Meter& meter) {
  meter.made(text.bytes.size());
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return strip(text, a.get(0, "chars"), name != "rstrip", name != "lstrip");
  if (name == "upper") return upper(text);
  if (name == "lower") return lower(text);
  if (name == "title") return title(text);
  if (name == "capitalize") return capitalize(text);
  if (name == "startswith") return starts_or_ends(text, a.get(0, "prefix"), false);
  if (name == "endswith") return starts_or_ends(text, a.get(0, "suffix"), true);
  if (name == "split")
    return Value::of(split(text, a.get(0, "sep"), integer_of(a.get(1, "maxsplit"), -1), meter));
  if (name == "join")
    return join(elements_of(a.get(0, "") ? *a.get(0, "") : Value()), text, nullptr, meter);
  if (name == "find") {
    const size_t at = text.bytes.find(text_of(a.get(0, ""), "find").bytes);
    return at == std::string::npos
               ? int64_t{-1}
               : int64_t(code_points(std::string_view(text.bytes).substr(0, at)));
  }
  if (name == "count") {
    const std::string& part = text_of(a.get(0, ""), "count").bytes;
    if (part.empty()) throw Mistake("count takes no empty string");
    int64_t count = 0;
    for (size_t at = 0; (at = text.bytes.find(part, at)) != std::string::npos; at += part.size())
      ++count;
    return count;
  }
  if (name == "replace") return replace_with(text, a, meter);
  throw Mistake("the method '{}' of a string is not known", name);
}

Value dict_method(const std::string& name, const Dict& dict, const Arguments& a) {
  if (name == "items") return Value::of(pairs_of(dict));
  if (name == "get") {
    const Value* found = find(dict, text_of(a.get(0, ""), "get").bytes);
    const Value* other = a.get(1, "");
    return found ? *found : other ? *other : Value(None{});
  }
  if (name != "keys" && name != "values")
    throw Mistake("the method '{}' of a dict is not known", name);
  List list;
  for (const auto& [key, value] : dict)
    list.push_back(name == "keys" ? Value(Text(key, true)) : value);
  return Value::of(std::move(list));
}

}  // namespace

const Value* Arguments::get(size_t place, std::string_view name) const {
  if (place < values.size()) return &values[place];
  for (const auto& [own, value] : named) {
    if (own == name) return &value;
  }
  return nullptr;
}

void Arguments::check_most(size_t count, std::string_view of) const {
  if (values.size() + named.size() > count) throw Mistake("{} takes {} arguments", of, count);
}

Value call_filter(
    const std::string& name, const Value& value, const Arguments& arguments, Meter& meter
) {
  const auto found = filters().find(name);
  if (found == filters().end()) throw Mistake("the filter '{}' is not known", name);
  if (value.text()) meter.made(value.text()->bytes.size());
  if (value.list()) meter.step(int64_t(value.list()->size()));
  return found->second(value, arguments, meter);
}

bool call_test(const std::string& name, const Value& value, const Arguments& arguments) {
  const Value* other = arguments.get(0, "");
  const auto needed = [&]() -> const Value& {
    if (!other) throw Mistake("the test '{}' takes an argument", name);
    return *other;
  };
  if (name == "defined") return !value.undefined();
  if (name == "undefined") return value.undefined();
  if (name == "none") return value.none();
  if (name == "true") return value.get<bool>() && *value.get<bool>();
  if (name == "false") return value.get<bool>() && !*value.get<bool>();
  if (name == "boolean") return value.get<bool>() != nullptr;
  if (name == "integer") return value.get<int64_t>() != nullptr;
  if (name == "float") return value.get<double>() != nullptr;
  if (name == "number") return value.number();
  if (name == "string") return value.text() != nullptr;
  if (name == "mapping") return value.dict() != nullptr;
  if (name == "sequence" || name == "iterable")
    return value.text() || value.list() || value.dict() ||
           (name == "iterable" && value.undefined());
  if (name == "callable") return value.get<const Macro*>() != nullptr;
  if (name == "equalto" || name == "eq") return equal(value, needed());
  if (name == "ne") return !equal(value, needed());
  if (name == "in") return contains(needed(), value);
  if (name == "odd" || name == "even" || name == "divisibleby") {
    const int64_t by = name == "divisibleby" ? integer_of(&needed(), 1) : 2;
    if (by == 0) throw Mistake("division by zero");
    const int64_t rest = integer_of(&value, 0) % (by == -1 ? 1 : by);
    return name == "odd" ? rest != 0 : rest == 0;
  }
  throw Mistake("the test '{}' is not known", name);
}

Value call_method(const std::string& name, const Value& value, const Arguments& a, Meter& meter) {
  if (value.text()) return text_method(name, *value.text(), a, meter);
  if (value.dict()) return dict_method(name, *value.dict(), a);
  throw Mistake("the method '{}' of a value of type {} is not known", name, type_name(value));
}

Value call_function(const std::string& name, const Arguments& a, Meter& meter) {
  if (name == "raise_exception")
    throw Mistake("the template refuses: {}", text_of(a.get(0, "message"), name).bytes);
  if (name == "namespace" || name == "dict") {
    Dict members;
    for (const auto& [key, value] : a.named) {
      if (name == "namespace" && value.has_namespace())
        throw Mistake("a namespace cannot hold a namespace");
      members.emplace_back(key, value);
    }
    if (name == "dict") return Value::of(std::move(members));
    return std::make_shared<Namespace>(Namespace{std::move(members)});
  }
  if (name == "range") {
    const int64_t first = integer_of(a.get(0, ""), 0);
    const bool one = a.values.size() < 2;
    const int64_t begin = one ? 0 : first, end = one ? first : integer_of(a.get(1, ""), 0);
    const int64_t step = integer_of(a.get(2, ""), 1);
    if (step == 0) throw Mistake("the step of range must not be 0");
    List list;
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
      meter.step();
      list.push_back(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return Value::of(std::move(list));
  }
  if (name == "strftime_now") {
    const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm local{};
    localtime_r(&now, &local);
    char text[256];
    const size_t size =
        std::strftime(text, sizeof text, text_of(a.get(0, "format"), name).bytes.c_str(), &local);
    return Text(std::string(text, size));
  }
  throw Mistake("the function '{}' is not known", name);
}

bool contains(const Value& container, const Value& element) {
  if (container.text()) {
    return container.text()->bytes.find(text_of(&element, "in").bytes) != std::string::npos;
  }
  if (container.list()) {
    return std::any_of(container.list()->begin(), container.list()->end(), [&](const Value& one) {
      return equal(one, element);
    });
  }
  if (container.dict()) return element.text() && find(*container.dict(), element.text()->bytes);
  if (container.undefined()) return false;
  throw Mistake("'in' takes no value of type {}", type_name(container));
}

Value item_of(const Value& container, const Value& index) {
  if (container.dict() && index.text()) {
    const Value* found = find(*container.dict(), index.text()->bytes);
    return found ? *found : Value(Undefined{index.text()->bytes});
  }
  if (container.space() && index.text()) {
    const Value* found = find((*container.space())->members, index.text()->bytes);
    return found ? *found : Value(Undefined{index.text()->bytes});
  }
  const int64_t* i = index.get<int64_t>();
  if (i && (container.list() || container.text())) {
    const int64_t n = length(container), at = *i < 0 ? *i + n : *i;
    if (at < 0 || at >= n) return Undefined{fmt::format("element {}", *i)};
    if (container.list()) return (*container.list())[size_t(at)];
    const std::string_view bytes = container.text()->bytes;
    const size_t from = offset_of(bytes, size_t(at));
    return container.text()->part(from, code_point_size(bytes.substr(from)));
  }
  return Undefined{index.text() ? index.text()->bytes : "an element"};
}

List elements_of(const Value& value) {
  if (value.list()) return *value.list();
  if (value.undefined()) return {};
  List list;
  if (value.dict()) {
    for (const auto& [key, item] : *value.dict()) list.push_back(Text(key, true));
    return list;
  }
  if (!value.text()) throw Mistake("a value of type {} has no elements", type_name(value));
  const std::string_view bytes = value.text()->bytes;
  if (bytes.size() > 100'000) throw Mistake("a loop over so long a string is not known");
  for (size_t at = 0; at < bytes.size(); at += code_point_size(bytes.substr(at)))
    list.push_back(value.text()->part(at, code_point_size(bytes.substr(at))));
  return list;
}

}  // namespace horner::jinja
