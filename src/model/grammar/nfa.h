// Automata over bytes while they are built. An edge reads a byte of a range, or nothing (a jump), or a whole text of another
// rule (a call).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/grammar/budget.h"
#include "model/grammar/characters.h"

namespace horner::grammar {

struct ByteEdge {
  uint8_t first, last;
  int32_t to;
};
struct CallEdge {
  int32_t rule, to;
  bool operator==(const CallEdge&) const = default;
};

// Texts are those that lead from state 0 to state 1.
class Nfa {
 public:
  struct State {
    std::vector<ByteEdge> edges;
    std::vector<int32_t> jumps;
    std::vector<CallEdge> calls;
  };

  explicit Nfa(Budget& budget);

  int32_t add();
  void byte(int32_t from, uint8_t first, uint8_t last, int32_t to);
  void jump(int32_t from, int32_t to);
  void call(int32_t from, int32_t rule, int32_t to);

  // One character of the set, as UTF-8.
  void character(int32_t from, const Characters& set, int32_t to);
  // One character of the set inside a JSON string: quotes, backslashes and control characters are escaped.
  void json_character(int32_t from, const Characters& set, int32_t to);
  // The same for every character, and with every escape that JSON has.
  void any_json_character(int32_t from, int32_t to);

  // These return the state after what they read.
  int32_t text(int32_t from, std::string_view bytes);
  int32_t digits(int32_t from, int32_t least, int32_t most);

  Budget& budget() { return budget_; }
  const std::vector<State>& states() const { return states_; }

 private:
  void escape(int32_t from, std::string_view letters, int32_t to);
  void hex(int32_t from, std::string_view set, int32_t to);  // of digits and lower-case letters

  Budget& budget_;
  std::vector<State> states_;
};

constexpr int32_t kStart = 0, kEnd = 1;

}  // namespace horner::grammar
