// Deterministic automata: at most one edge of a state takes a byte, and at most one of its calls goes to a rule.
#pragma once

#include "model/grammar/nfa.h"

namespace horner::grammar {

struct Dfa {
  struct State {
    std::vector<ByteEdge> edges;  // by their first byte
    std::vector<CallEdge> calls;
    bool accepts = false;
  };
  std::vector<State> states;  // the first one is the start
};

// The state after a byte, or -1.
int32_t next_state(const Dfa::State& state, uint8_t byte);

Dfa deterministic(const Nfa& nfa, Budget& budget);

// The texts of `a` that are texts of `b`, or that are not. Neither has calls.
enum class Keep { both, first_only };
Dfa product(const Dfa& a, const Dfa& b, Keep keep, Budget& budget);

void insert(Nfa& nfa, int32_t from, const Dfa& dfa, int32_t to);
bool has_text(const Dfa& dfa);  // of an automaton without calls

}  // namespace horner::grammar
