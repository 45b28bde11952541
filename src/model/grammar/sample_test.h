// Texts of a grammar, for tests.
#pragma once

#include <optional>
#include <random>

#include "model/grammar/grammar.h"

namespace horner::grammar {

inline bool matches(const Grammar& grammar, std::string_view text) {
  Readings now = first_readings(grammar);
  for (const char byte : text) {
    now = after(grammar, now, uint8_t(byte));
    if (now.empty()) return false;
  }
  return complete(now);
}

// A random text of at most so many bytes. Its bytes come at first from the whole grammar, at the end from what closes it
// soonest. Nothing if that takes longer. Throws if the text gets stuck.
inline std::optional<std::string> random_text(const Grammar& grammar, uint64_t seed, size_t most) {
  std::mt19937_64 random(seed);
  std::string text;
  Readings now = first_readings(grammar);
  while (text.size() < most) {
    std::vector<std::pair<uint8_t, Readings>> next;
    for (int byte = 0; byte < 256; ++byte) {
      Readings one = after(grammar, now, uint8_t(byte));
      if (!one.empty()) next.emplace_back(uint8_t(byte), std::move(one));
    }
    if (next.empty() && !complete(now)) throw std::logic_error("stuck after " + text);
    if (complete(now) && (next.empty() || random() % 3 == 0)) return text;
    std::vector<size_t> good;  // quotes, brackets and commas are taken more often
    for (size_t i = 0; i < next.size(); ++i) {
      const bool closes = next[i].first == '"' || next[i].first == ']' || next[i].first == '}';
      const size_t weight = closes                ? (text.size() > most / 4 ? 200 : 20)
                            : next[i].first < 127 ? 2
                                                  : 1;
      good.insert(good.end(), weight, i);
    }
    auto& [byte, readings] = next[good[random() % good.size()]];
    text += char(byte);
    now = std::move(readings);
  }
  return complete(now) ? std::optional(text) : std::nullopt;
}

}  // namespace horner::grammar
