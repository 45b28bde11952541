// Text to train on: what the user names, or what this machine has.
//
//   named           files, and folders with all the text below them, here or below HORNER_DATA;
//                   "grammar": made up, see grammar.h
//   nothing named   *.txt, plain, gz or xz, below the folder HORNER_DATA if that is set; else the first 16 MB of
//                   the documentation on this machine (/usr/share/doc, /usr/share/man); else the grammar
#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace horner {

struct TextFile {
  std::string path;
  int64_t bytes;     // on disk
  std::string hash;  // XXH3 (128 bits) of them
};

struct TextFiles {
  std::vector<TextFile> files;  // in the order of their paths
  bool grammar = false;
  int64_t bytes() const;
  std::string hash() const;
  Json json() const;  // path, bytes and xxh128 of each
};

// DataError when a named one is missing, or a folder holds no text.
TextFiles find_text(const std::vector<std::string>& named);

bool is_text(std::string_view bytes);  // UTF-8 without zeros, judged by its beginning

}  // namespace horner
