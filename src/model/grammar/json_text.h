// Parts of JSON texts as automata.
#pragma once

#include <optional>

#include "model/grammar/nfa.h"

namespace horner::grammar {

// Between signs of JSON: nothing, a space, or a new line and at most 16 spaces. Each function returns the state after it.
int32_t add_space(Nfa& nfa, int32_t from);

int32_t add_any_string(Nfa& nfa, int32_t from);

// A number of at most 15 digits, with a fraction and an exponent.
int32_t add_any_number(Nfa& nfa, int32_t from);

struct Bound {
  int64_t value;
  bool open = false;  // the value itself is outside
};
constexpr int64_t kLargestWhole = 999'999'999'999'999;  // exact in a double

// Whole numbers, or numbers with a fraction, in a range; without a bound: up to kLargestWhole.
void add_whole(Nfa& nfa, int32_t from, int64_t least, int64_t most, int32_t to);
void add_number(Nfa& nfa, int32_t from, const Bound& least, const Bound& most, int32_t to);

}  // namespace horner::grammar
