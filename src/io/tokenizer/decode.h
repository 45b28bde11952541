// Decoders of a tokenizer.json: steps from the texts of tokens to text.
//
//   ByteLevel      tokens are bytes already                    Fuse      one text of all
//   Replace        in each token                               Strip     characters at the ends
//   ByteFallback   <0x41> is the byte 41                       Metaspace ▁ is a space, none at the start
//   WordPiece      a space before a token without the prefix; clean-up of English punctuation
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/tokenizer/spec.h"

namespace horner {

using Texts = std::vector<std::string>;
using DecodeStep = std::function<Texts(Texts)>;

struct Decoder {
  std::vector<DecodeStep> steps;
  std::string between;      // text between tokens: a space if the file names no decoder
  bool byte_level = false;  // tokens decode to bytes

  std::string decode(Texts tokens) const;
};

Decoder read_decoder(const Object* json);
DecodeStep wordpiece_decoder(const std::string& prefix, bool cleanup);

}  // namespace horner
