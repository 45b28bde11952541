// A mixer or a task as text: its name, and the settings that differ from the defaults.
//
//   gla        gla:heads=8        taylor:order=4,norm=l2        text:files=[a.txt,b.txt]
//
// This is the one parser and the one printer: the same text means the same in every command.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace horner {

struct TypeSpec {
  struct Setting {
    std::string name, value;
    bool operator==(const Setting&) const = default;
  };
  std::string name;
  std::vector<Setting> settings;  // in the order given

  static TypeSpec parse(std::string_view text);
  std::string text() const;                                         // what parse reads back
  std::string settings_text() const;                                // the part after the colon
  std::optional<std::string> find(std::string_view setting) const;  // its value, if it was given
  bool operator==(const TypeSpec&) const = default;
};
using MixerSpec = TypeSpec;

// "order=4,norm=l2"; commas inside brackets belong to the value. UsageError if there is no '='.
std::vector<TypeSpec::Setting> parse_settings(std::string_view text);

// Specs from a list that was cut at every comma, as the command line does it:
//   "gla:heads=2" "conv=4" "softmax"  ->  "gla:heads=2,conv=4" "softmax"
std::vector<std::string> whole_specs(const std::vector<std::string>& items);

}  // namespace horner
