// Grammars: which bytes may follow in a text that must match a regular expression or a JSON schema.
//
//   const Grammar g = regex_grammar("[0-9]+(,[0-9]+)*");
//   Readings now = first_readings(g);
//   now = after(g, now, '7');            // empty: no text of the grammar begins so
//   complete(now);                       // whether the text may end here
//
// A grammar is a list of rules. Each rule is a deterministic automaton over bytes with calls of other rules, so a rule can
// contain itself. A reading is a state with the states to which the calls around it return. Every reading can be completed:
// states without an end were taken out, and a call is made only where the rest fits into kMostDepth calls. So no text ever
// gets stuck.
#pragma once

#include <array>
#include <string_view>

#include "core/json.h"
#include "model/grammar/dfa.h"

namespace horner::grammar {

struct Grammar {
  std::vector<Dfa::State> states;      // of all rules; edges and calls lead to indices of this list
  std::vector<int32_t> starts;         // of each rule; rule 0 is the whole text
  std::array<uint8_t, 256> classes{};  // bytes of one class lead to the same state from every state
  int32_t class_count = 0;
  std::vector<int32_t> heights;  // of each state: calls inside of calls that its shortest end needs
};

// UsageError with the place for what is not supported, for more than budget.h allows, and if no text is possible.
Grammar regex_grammar(std::string_view pattern);
// The subset of JSON Schema that docs/generate.md lists, with these texts around the value.
Grammar schema_grammar(
    const Json& schema, std::string_view before = "", std::string_view behind = ""
);
Grammar json_object_grammar();  // any JSON object

// Of rules that `deterministic` made; names are for errors.
struct Rule {
  std::string name;
  Dfa automaton;
};
Grammar linked(const std::vector<Rule>& rules);

// All ways to read the text so far: [whether it may end here; for each reading: its length, return states, state].
using Readings = std::vector<int32_t>;
Readings first_readings(const Grammar& grammar);
Readings after(const Grammar& grammar, const Readings& readings, uint8_t byte);
inline bool complete(const Readings& readings) { return !readings.empty() && readings[0] != 0; }
inline bool can_go_on(const Readings& readings) { return readings.size() > 1; }

}  // namespace horner::grammar
