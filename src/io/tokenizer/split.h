// Pre-tokenisers of a tokenizer.json: how text is cut into the pieces that a model encodes one by one.
//
//   Split            a literal or a pattern, with its behavior and invert
//   ByteLevel        GPT-2's pattern unless use_regex is false; a space before if add_prefix_space
//   Whitespace WhitespaceSplit Punctuation Digits BertPreTokenizer: fixed patterns
//   Metaspace        " " becomes its replacement, which begins a piece
//
// Bytes that are not UTF-8 match nothing.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer/regex.h"
#include "io/tokenizer/spec.h"

namespace horner {

using PieceSink = std::function<void(std::string_view piece)>;
// `first`: the piece is the beginning of the text.
using SplitStep = std::function<void(std::string_view text, bool first, const PieceSink& sink)>;

struct Splitter {
  std::vector<SplitStep> steps;
  bool byte_level = false;  // the model's symbols are bytes

  // Calls `sink` for every piece, in order; empty ones are left out.
  void split(std::string_view text, bool first, const PieceSink& sink) const;
};

Splitter read_splitter(const Object* json);  // null: the whole text is one piece

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
SplitStep split_by(const std::string& pattern, Behavior behavior, bool invert = false);

extern const char kGpt2Pattern[];
Splitter bert_splitter();

// "pattern": {"String": …} or {"Regex": …}, as a pattern.
std::string read_pattern(Spec& spec);

// The matches and what lies between them, in order.
void each_part(
    std::string_view text,
    const Regex& regex,
    const std::function<void(std::string_view part, bool is_match)>& call
);

}  // namespace horner
