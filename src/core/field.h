// A setting with its type erased: a name and a pointer to a value that JSON and text can set.
//
//   type                  JSON                                  text
//   bool                  true                                  true
//   int64_t               4                                     4
//   double                0.5 "inf" "-inf", never NaN           0.5 inf -inf
//   std::string           "auto", UTF-8                         auto
//   std::optional         null or the value                     none or the value
//   std::vector           [1, 2]                                1;2 or [1,2]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/json.h"

namespace horner {

struct Field {
  using Value = std::variant<
      bool*,
      int64_t*,
      double*,
      std::string*,
      std::optional<int64_t>*,
      std::optional<double>*,
      std::vector<int64_t>*,
      std::vector<double>*,
      std::vector<std::string>*>;

  std::string name;  // with its tables: "model.mixer.order"
  std::string help;
  std::vector<std::string> choices;  // of a text or of each text of a list; empty: any
  Value value;                       // into the settings, which must outlive the field
  Json initial;                      // what a default-constructed settings struct holds
};
using Fields = std::vector<Field>;

Json get_json(const Field& field);

// UsageError that names the key when the value is of another type or not among the choices.
void set_json(const Field& field, const Json& json);
void set(const Field& field, std::string_view text);

std::string type_name(const Field& field);
std::string to_text(const Json& value);  // what set(field, text) reads back

}  // namespace horner
