#include "engine/streamed_text.h"

#include <algorithm>
#include <cstdint>

#include "core/check.h"

namespace horner {
namespace {

struct Sequence {
  size_t size;    // bytes that belong together
  bool whole;     // a character
  bool may_grow;  // the text ends inside of a character
};

// The character at the beginning, by the table of well-formed UTF-8 (Unicode 15, table 3-7). Of a broken one, the longest part
// that could have begun a character counts as one mistake.
Sequence first_sequence(std::string_view text) {
  const auto byte = [&](size_t i) { return uint8_t(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  const size_t size = lead >= 0xc2 && lead < 0xe0   ? 2
                      : lead >= 0xe0 && lead < 0xf0 ? 3
                      : lead >= 0xf0 && lead < 0xf5 ? 4
                                                    : 1;
  if (size == 1) return {1, false, false};
  for (size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {i, false, true};
    const uint8_t least = i > 1 ? 0x80 : lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const uint8_t most = i > 1 ? 0xbf : lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (byte(i) < least || byte(i) > most) return {i, false, false};
  }
  return {size, true, false};
}

// Appends the text with mistakes replaced. An unfinished character at the end is left and its size returned, unless `all`.
size_t append_utf8(std::string& shown, std::string_view text, bool all) {
  while (!text.empty()) {
    const Sequence next = first_sequence(text);
    if (next.may_grow && !all) return text.size();
    shown += next.whole ? text.substr(0, next.size) : "\xef\xbf\xbd";
    text.remove_prefix(next.size);
  }
  return 0;
}

// Length of the longest end of `text` with which one of the stops begins.
size_t begun_stop(std::string_view text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    size_t n = std::min(text.size(), stop.size() - 1);
    while (n > longest && text.substr(text.size() - n) != std::string_view(stop).substr(0, n)) --n;
    longest = std::max(longest, n);
  }
  return longest;
}

}  // namespace

StreamedText::StreamedText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) HORNER_CHECK(!stop.empty(), "a stop string is empty");
}

std::string StreamedText::add(std::string_view bytes) {
  std::string shown;
  if (!stopped_by_.empty()) return shown;
  held_ += bytes;
  size_t at = held_.npos;
  for (const std::string& stop : stops_) {
    const size_t found = held_.find(stop);
    if (found == held_.npos) continue;
    if (found < at || (found == at && stop.size() > stopped_by_.size())) {
      at = found;
      stopped_by_ = stop;
    }
  }
  if (!stopped_by_.empty()) {
    append_utf8(shown, std::string_view(held_).substr(0, at), true);
    held_.clear();
    return shown;
  }
  const size_t safe = held_.size() - begun_stop(held_, stops_);
  const size_t unfinished = append_utf8(shown, std::string_view(held_).substr(0, safe), false);
  held_.erase(0, safe - unfinished);
  return shown;
}

std::string StreamedText::finish() {
  std::string shown;
  append_utf8(shown, held_, true);
  held_.clear();
  return shown;
}

std::string as_utf8(std::string_view bytes) {
  std::string shown;
  append_utf8(shown, bytes, true);
  return shown;
}

}  // namespace horner
