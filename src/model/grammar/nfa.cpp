#include "model/grammar/nfa.h"

#include <algorithm>
#include <array>

namespace horner::grammar {
namespace {

struct Encoded {
  std::array<uint8_t, 4> bytes;
  size_t size;
};

Encoded encoded(int32_t c) {
  const auto tail = [&](int shift) { return uint8_t(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) return {{uint8_t(c)}, 1};
  if (c < 0x800) return {{uint8_t(0xc0 | c >> 6), tail(0)}, 2};
  if (c < 0x10000) return {{uint8_t(0xe0 | c >> 12), tail(6), tail(0)}, 3};
  return {{uint8_t(0xf0 | c >> 18), tail(12), tail(6), tail(0)}, 4};
}

// Adds the ranges of characters of one size in bytes. States that read any rest of a character are shared.
class Utf8 {
 public:
  Utf8(Nfa& nfa, int32_t to) : nfa_(nfa), rests_{to, -1, -1, -1} {}

  void add(int32_t from, CharacterRange range) {
    for (const int32_t last : {0x7f, 0x7ff, 0xffff, 0x10ffff}) {
      if (range.first > std::min(range.last, last)) continue;
      const Encoded a = encoded(range.first), b = encoded(std::min(range.last, last));
      between(from, a.bytes.data(), b.bytes.data(), a.size);
      range.first = last + 1;
    }
  }

 private:
  // The bytes a .. b, both of this size.
  void between(int32_t from, const uint8_t* a, const uint8_t* b, size_t size) {
    if (size == 1) return nfa_.byte(from, a[0], b[0], rest(0));
    const bool low = std::all_of(a + 1, a + size, [](uint8_t x) { return x == 0x80; });
    const bool high = std::all_of(b + 1, b + size, [](uint8_t x) { return x == 0xbf; });
    static constexpr uint8_t kLow[] = {0x80, 0x80, 0x80}, kHigh[] = {0xbf, 0xbf, 0xbf};
    if (low && high) return nfa_.byte(from, a[0], b[0], rest(size - 1));
    const auto part = [&](uint8_t lead, const uint8_t* first, const uint8_t* last) {
      const int32_t state = nfa_.add();
      nfa_.byte(from, lead, lead, state);
      between(state, first, last, size - 1);
    };
    if (a[0] == b[0]) return part(a[0], a + 1, b + 1);
    if (!low) part(a[0], a + 1, kHigh);
    const int first = a[0] + (low ? 0 : 1), last = b[0] - (high ? 0 : 1);
    if (first <= last) nfa_.byte(from, uint8_t(first), uint8_t(last), rest(size - 1));
    if (!high) part(b[0], kLow, b + 1);
  }

  int32_t rest(size_t bytes) {
    if (rests_[bytes] < 0) {
      const int32_t next = rest(bytes - 1), state = nfa_.add();
      nfa_.byte(state, 0x80, 0xbf, next);
      rests_[bytes] = state;
    }
    return rests_[bytes];
  }

  Nfa& nfa_;
  std::array<int32_t, 4> rests_;  // states before any 0, 1, 2, 3 further bytes of a character
};

const Characters kEscaped({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
constexpr std::pair<char, char> kShort[] = {  // character, letter of its escape
    {'"', '"'},
    {'\\', '\\'},
    {'\b', 'b'},
    {'\f', 'f'},
    {'\n', 'n'},
    {'\r', 'r'},
    {'\t', 't'}};

}  // namespace

Nfa::Nfa(Budget& budget) : budget_(budget) {
  add();
  add();
}

int32_t Nfa::add() {
  budget_.add_state();
  states_.emplace_back();
  return int32_t(states_.size()) - 1;
}

void Nfa::byte(int32_t from, uint8_t first, uint8_t last, int32_t to) {
  budget_.add_work();
  states_[size_t(from)].edges.push_back({first, last, to});
}
void Nfa::jump(int32_t from, int32_t to) {
  budget_.add_work();
  states_[size_t(from)].jumps.push_back(to);
}
void Nfa::call(int32_t from, int32_t rule, int32_t to) {
  budget_.add_work();
  states_[size_t(from)].calls.push_back({rule, to});
}

void Nfa::character(int32_t from, const Characters& set, int32_t to) {
  Utf8 utf8(*this, to);
  for (const CharacterRange& range : set.ranges()) utf8.add(from, range);
}

void Nfa::escape(int32_t from, std::string_view letters, int32_t to) {
  const int32_t state = add();
  byte(from, '\\', '\\', state);
  for (const char letter : letters) byte(state, uint8_t(letter), uint8_t(letter), to);
}

void Nfa::hex(int32_t from, std::string_view set, int32_t to) {
  for (const char digit : set) {
    byte(from, uint8_t(digit), uint8_t(digit), to);
    if (digit >= 'a') byte(from, uint8_t(digit - 32), uint8_t(digit - 32), to);
  }
}

void Nfa::json_character(int32_t from, const Characters& set, int32_t to) {
  character(from, set.without(kEscaped), to);
  std::string letters;
  for (const auto& [c, letter] : kShort) {
    if (set.has(c)) letters += letter;
  }
  if (!letters.empty()) escape(from, letters, to);
  for (int32_t c = 0; c < 0x20; ++c) {
    const bool has_letter =
        std::any_of(std::begin(kShort), std::end(kShort), [&](auto one) { return one.first == c; });
    if (has_letter || !set.has(c)) continue;
    const int32_t before = text(from, c < 0x10 ? "\\u000" : "\\u001");
    hex(before, std::string_view("0123456789abcdef").substr(size_t(c & 15), 1), to);
  }
}

void Nfa::any_json_character(int32_t from, int32_t to) {
  constexpr std::string_view kAll = "0123456789abcdef";
  character(from, Characters::all().without(kEscaped), to);
  escape(from, "\"\\/bfnrt", to);
  const auto rest = [&](int32_t state, int digits, int32_t end) {  // any hexadecimal digits
    for (int i = 0; i < digits; ++i) {
      const int32_t next = i + 1 < digits ? add() : end;
      hex(state, kAll, next);
      state = next;
    }
  };
  const int32_t u = text(from, "\\u"), three = add(), after_d = add(), two = add();
  hex(u, "0123456789abcef", three);
  rest(three, 3, to);
  hex(u, "d", after_d);
  hex(after_d, "01234567", two);
  rest(two, 2, to);
  const int32_t high = add(), low = add();  // a pair of surrogates is one character
  hex(after_d, "89ab", high);
  rest(high, 2, low);
  const int32_t second = text(low, "\\u"), second_d = add(), last = add();
  hex(second, "d", second_d);
  hex(second_d, "cdef", last);
  rest(last, 2, to);
}

int32_t Nfa::text(int32_t from, std::string_view bytes) {
  for (const char c : bytes) {
    const int32_t next = add();
    byte(from, uint8_t(c), uint8_t(c), next);
    from = next;
  }
  return from;
}

int32_t Nfa::digits(int32_t from, int32_t least, int32_t most) {
  const int32_t end = add();
  for (int32_t i = 0; i < most; ++i) {
    if (i >= least) jump(from, end);
    const int32_t next = add();
    byte(from, '0', '9', next);
    from = next;
  }
  jump(from, end);
  return end;
}

}  // namespace horner::grammar
