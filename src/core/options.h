// Settings: one declaration per setting; JSON, TOML, text and flags follow from it.
//
//   struct Options {
//     int64_t order = 2;
//     std::string form = "auto";
//     Position position;  // has visit of its own: a nested table
//     template <class Visitor> void visit(Visitor&& field) {
//       field("order", order, "highest power of q.k that is kept");
//       field("form", form, "how it is computed", {"auto", "recurrent", "parallel"});
//       field("position", position, "where a token stands");
//     }
//   };
//
//   surface        order                 a value of position
//   JSON           {"order": 4}          {"position": {"kind": "rope"}}
//   TOML           order = 4             [position]  kind = "rope"
//   text           order=4               position.kind=rope
//   command line   --order 4             --position.kind rope          (cli/flags.h)
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/field.h"

namespace horner {

// A setting as text, for help and documentation.
struct Description {
  std::string name, type, initial, help;
  std::vector<std::string> choices;
};

Json to_json(const Fields& fields);
Json changed(const Fields& fields);         // only what differs from the defaults
std::string to_toml(const Fields& fields);  // likewise
std::vector<Description> describe(const Fields& fields);

// The place of a key, as the start of an error's message: "run.toml:3: ".
using Where = std::function<std::string(const std::string& key)>;

// Each throws UsageError that names the key: unknown (with the nearest known one), of another type,
// or not among the choices. Settings that are not mentioned keep their values.
void from_json(const Fields& fields, const Json& json, const Where& where = {});
void from_toml(const Fields& fields, std::string_view toml, const std::string& source);
void from_toml_file(const Fields& fields, const std::string& path);
void from_text(const Fields& fields, std::string_view text);  // "order=2,norm=sum"
void set(const Fields& fields, std::string_view name, std::string_view text);

struct FieldCollector;
template <class T>
concept Settings = requires(T& settings, FieldCollector& collector) {
  settings.visit(collector);
};

struct FieldCollector {
  std::string prefix;
  Fields& fields;

  template <class T>
  void operator()(
      const std::string& name, T& value, std::string help, std::vector<std::string> choices = {}
  ) {
    if constexpr (Settings<T>) {
      value.visit(FieldCollector{prefix + name + ".", fields});
    } else {
      fields.push_back({prefix + name, std::move(help), std::move(choices), &value, {}});
    }
  }
};

void set_initial(Fields& fields, const Fields& defaults);

template <Settings T>
Fields fields(T& settings) {
  T defaults;
  Fields list, default_list;
  settings.visit(FieldCollector{"", list});
  defaults.visit(FieldCollector{"", default_list});
  set_initial(list, default_list);
  return list;
}

template <Settings T>
Json to_json(T settings) {
  return to_json(fields(settings));
}

template <Settings T>
Json changed(T settings) {
  return changed(fields(settings));
}

template <Settings T>
std::string to_toml(T settings) {
  return to_toml(fields(settings));
}

template <Settings T>
std::vector<Description> describe() {
  T settings;
  return describe(fields(settings));
}

template <Settings T>
void from_json(T& settings, const Json& json) {
  from_json(fields(settings), json);
}

template <Settings T>
void from_toml(T& settings, std::string_view toml, const std::string& source) {
  from_toml(fields(settings), toml, source);
}

template <Settings T>
void from_toml_file(T& settings, const std::string& path) {
  from_toml_file(fields(settings), path);
}

template <Settings T>
void from_text(T& settings, std::string_view text) {
  from_text(fields(settings), text);
}

template <Settings T>
void set(T& settings, std::string_view name, std::string_view text) {
  set(fields(settings), name, text);
}

}  // namespace horner
