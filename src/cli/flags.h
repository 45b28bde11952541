// A settings struct as command-line flags: --order 4, --causal, --no-causal, --model.mixer.order 4.
//
// CLI11 runs callbacks in the order in which options were declared: what is declared before the
// flags (add_config) is overridden by them.
#pragma once

#include <CLI/CLI.hpp>

#include "core/options.h"

namespace horner {

inline void add_flag(CLI::App& app, const Field& field) {
  const std::string name = "--" + field.name;
  CLI::Option* option = nullptr;
  if (std::holds_alternative<bool*>(field.value)) {
    const auto assign = [field](int64_t count) { set_json(field, count > 0); };
    option = app.add_flag_function(name + ",!--no-" + field.name, assign, field.help);
  } else {
    const auto assign = [field](const std::string& text) { set(field, text); };
    option = app.add_option_function<std::string>(name, assign, field.help);
    option->type_name(
        !field.choices.empty()     ? "{" + CLI::detail::join(field.choices, "|") + "}"
        : field.initial.is_array() ? type_name(field) + " A,B,.."
                                   : type_name(field)
    );
  }
  option->default_str(to_text(field.initial));
  if (field.initial.is_array()) {
    option->join(',');  // --op linear --op scan is --op linear,scan
  } else {
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
}

// The settings must outlive the parse.
template <Settings T>
void add_flags(CLI::App& app, T& settings) {
  for (const Field& field : fields(settings)) add_flag(app, field);
}

template <Settings T>
void add_config(CLI::App& app, T& settings) {
  const auto read = [&settings](const std::string& path) { from_toml_file(settings, path); };
  app.add_option_function<std::string>("--config", read, "TOML file; flags stand above it")
      ->type_name("FILE");
}

}  // namespace horner
