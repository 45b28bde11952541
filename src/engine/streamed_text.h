// The text of a stream as it grows: whole characters only, and nothing of a stop string.
//
//   bytes  "Hel" "lo \xc3" "\xa9t" "e\n" "\nUs" "er:"         stop "\n\nUser:"
//   shown  "Hel" "lo "     "ét"    "e"   ""     "" stopped
//
// Bytes that cannot become UTF-8 are shown as U+FFFD.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace horner {

class StreamedText {
 public:
  explicit StreamedText(std::vector<std::string> stops = {});  // UsageError if one is empty

  std::string add(std::string_view bytes);  // what can be shown now
  std::string finish();                     // what was held back, when no more bytes come
  // The stop string that was found, or empty; of several the one that begins first, then the longest.
  const std::string& stopped_by() const { return stopped_by_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string stopped_by_;
};

// `bytes` with U+FFFD in place of what is not UTF-8.
std::string as_utf8(std::string_view bytes);

}  // namespace horner
