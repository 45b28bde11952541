// JSON schemas as grammars. docs/generate.md lists what is supported; schema_grammar (grammar.h) refuses everything else.
//
// A schema text is a tree, and each of its nodes becomes a part of an automaton once. Only what $ref points to, the items of
// counted arrays and "any value" are rules of their own, so a grammar is about as large as its schema.
#pragma once

#include <map>
#include <optional>

#include "model/grammar/grammar.h"

namespace horner::grammar {

class SchemaCompiler {
 public:
  explicit SchemaCompiler(const Json& root) : root_(root) {}

  // With these texts around the value. UsageError with the place in the schema.
  Grammar run(std::string_view before, std::string_view behind);

 private:
  struct Waiting {
    const Json* schema;  // nullptr: a rule of our own
    std::string place;
  };

  int32_t add_rule(const Json& schema, const std::string& place);
  int32_t any_value_rule();
  int32_t character_rule();

  // Between two states: one value that satisfies the schema.
  void value(Nfa& nfa, int32_t from, const Json& schema, const std::string& place, int32_t to);
  void typed(
      Nfa& nfa,
      int32_t from,
      const Json& schema,
      const std::string& type,
      const std::string& place,
      int32_t to
  );
  void alternatives(
      Nfa& nfa,
      int32_t from,
      const Json& schema,
      const std::string& key,
      const std::string& place,
      int32_t to
  );
  void check_disjoint(const Json& list, const std::string& place);
  bool disjoint(const Json& a, const Json& b, int32_t depth);
  bool objects_disjoint(const Json& a, const Json& b, int32_t depth);
  const Json& resolved(const Json& schema, const std::string& place) const;
  void any_value(Nfa& nfa, int32_t from, int32_t to);
  void string(Nfa& nfa, int32_t from, const Json& schema, const std::string& place, int32_t to);
  void number(
      Nfa& nfa, int32_t from, const Json& schema, bool whole, const std::string& place, int32_t to
  );
  void object(Nfa& nfa, int32_t from, const Json& schema, const std::string& place, int32_t to);
  void array(Nfa& nfa, int32_t from, const Json& schema, const std::string& place, int32_t to);

  const Json& root_;
  Budget budget_;
  std::vector<Waiting> waiting_;  // by rule
  std::map<const Json*, int32_t> rule_of_;
  std::optional<int32_t> character_rule_;
  int32_t nesting_ = 0;
};

}  // namespace horner::grammar
