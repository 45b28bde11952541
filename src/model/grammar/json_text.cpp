#include "model/grammar/json_text.h"

#include <algorithm>
#include <string>

namespace horner::grammar {
namespace {

// Digits of one length from `least` to `most`.
void digits_between(
    Nfa& nfa, int32_t from, std::string_view least, std::string_view most, int32_t to
) {
  if (least.empty()) return nfa.jump(from, to);
  const auto all = [](std::string_view text, char digit) {
    return text.find_first_not_of(digit) == text.npos;
  };
  if (all(least, '0') && all(most, '9')) {
    const auto count = int32_t(least.size());
    return nfa.jump(nfa.digits(from, count, count), to);
  }
  const auto size = int32_t(least.size()) - 1;
  const std::string zeros(size_t(size), '0'), nines(size_t(size), '9');
  const auto part = [&](char first, char last, std::string_view low, std::string_view high) {
    const int32_t state = nfa.add();
    nfa.byte(from, uint8_t(first), uint8_t(last), state);
    digits_between(nfa, state, low, high, to);
  };
  if (least[0] == most[0]) return part(least[0], least[0], least.substr(1), most.substr(1));
  part(least[0], least[0], least.substr(1), nines);
  part(most[0], most[0], zeros, most.substr(1));
  if (least[0] + 1 <= most[0] - 1) {
    const int32_t state = nfa.add();
    nfa.byte(from, uint8_t(least[0] + 1), uint8_t(most[0] - 1), state);
    nfa.jump(nfa.digits(state, size, size), to);
  }
}

// 0 <= least; nothing if the range is empty.
void add_natural(Nfa& nfa, int32_t from, int64_t least, int64_t most, int32_t to) {
  for (int64_t low = 0, high = 9; low <= most; low = high + 1, high = high * 10 + 9) {
    const int64_t first = std::max(low, least), last = std::min(high, most);
    if (first <= last) digits_between(nfa, from, std::to_string(first), std::to_string(last), to);
  }
}

enum class Fraction { any, zero, above_zero };

void add_fraction(Nfa& nfa, int32_t from, Fraction kind, int32_t to) {
  if (kind != Fraction::above_zero) nfa.jump(from, to);
  const int32_t point = nfa.text(from, ".");
  if (kind == Fraction::any) return nfa.jump(nfa.digits(point, 1, 15), to);
  int32_t zeros = point;  // at most 8, then a digit that is not 0
  for (int i = 0; i < 8; ++i) {
    if (kind == Fraction::above_zero) {
      const int32_t digit = nfa.add();
      nfa.byte(zeros, '1', '9', digit);
      nfa.jump(nfa.digits(digit, 0, 7), to);
    }
    zeros = nfa.text(zeros, "0");
    if (kind == Fraction::zero) nfa.jump(zeros, to);
  }
}

// Numbers from `least` >= 0 to `most`.
void add_magnitude(Nfa& nfa, int32_t from, const Bound& least, const Bound& most, int32_t to) {
  const auto whole = [&](int64_t first, int64_t last, Fraction fraction) {
    if (first > last) return;
    const int32_t state = nfa.add();
    add_natural(nfa, from, first, last, state);
    add_fraction(nfa, state, fraction, to);
  };
  whole(least.value + (least.open ? 1 : 0), most.value - 1, Fraction::any);
  if (least.open && least.value < most.value) whole(least.value, least.value, Fraction::above_zero);
  const bool has_most = most.value > least.value || (most.value == least.value && !least.open);
  if (!most.open && has_most) whole(most.value, most.value, Fraction::zero);
}

}  // namespace

int32_t add_space(Nfa& nfa, int32_t from) {
  const int32_t end = nfa.add();
  nfa.jump(from, end);
  nfa.byte(from, ' ', ' ', end);
  int32_t state = nfa.text(from, "\n");
  nfa.jump(state, end);
  for (int i = 0; i < 16; ++i) {
    state = nfa.text(state, " ");
    nfa.jump(state, end);
  }
  return end;
}

int32_t add_any_string(Nfa& nfa, int32_t from) {
  const int32_t inside = nfa.text(from, "\"");
  nfa.any_json_character(inside, inside);
  return nfa.text(inside, "\"");
}

int32_t add_any_number(Nfa& nfa, int32_t from) {
  const int32_t sign = nfa.add(), whole = nfa.add(), fraction = nfa.add(), end = nfa.add();
  nfa.jump(from, sign);
  nfa.byte(from, '-', '-', sign);
  add_natural(nfa, sign, 0, kLargestWhole, whole);
  add_fraction(nfa, whole, Fraction::any, fraction);
  nfa.jump(fraction, end);
  const int32_t letter = nfa.add(), exponent = nfa.add();
  nfa.byte(fraction, 'e', 'e', letter);
  nfa.byte(fraction, 'E', 'E', letter);
  nfa.jump(letter, exponent);
  nfa.byte(letter, '+', '+', exponent);
  nfa.byte(letter, '-', '-', exponent);
  nfa.jump(nfa.digits(exponent, 1, 2), end);
  return end;
}

void add_whole(Nfa& nfa, int32_t from, int64_t least, int64_t most, int32_t to) {
  if (most >= 0) add_natural(nfa, from, std::max<int64_t>(least, 0), most, to);
  if (least < 0) add_natural(nfa, nfa.text(from, "-"), std::max<int64_t>(-most, 1), -least, to);
}

void add_number(Nfa& nfa, int32_t from, const Bound& least, const Bound& most, int32_t to) {
  if (most.value >= 0) {
    const bool from_zero = least.value < 0;
    add_magnitude(nfa, from, from_zero ? Bound{0} : least, most, to);
  }
  if (least.value < 0) {  // -x for x in -most .. -least; -0 is left out
    const bool below_zero = most.value < 0;
    const Bound smallest = below_zero ? Bound{-most.value, most.open} : Bound{0, true};
    add_magnitude(nfa, nfa.text(from, "-"), smallest, {-least.value, least.open}, to);
  }
}

}  // namespace horner::grammar
