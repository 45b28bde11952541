// The texts of a conversion as tokens: what is calibrated and trained on, and what the certificate is measured on.
#pragma once

#include "model/formats/formats.h"
#include "tasks/text/token_stream.h"

namespace horner {

struct ConvertOptions;

struct ConvertTexts {
  std::vector<std::string> files;  // of training
  TokenStream train;
  std::vector<int64_t> test;
  std::string test_name;
};

// The files that `o` names: path, bytes and xxh128 of each.
Json text_sources(const ConvertOptions& o);

// Without --test the last tenth of the text is the test. `cache`: a file with the tokens of an earlier call, or empty.
ConvertTexts read_texts(
    const LoadedModel& loaded, const ConvertOptions& o, const std::string& cache
);
void write_cache(const ConvertTexts& texts, const std::string& cache, int64_t vocabulary);

// Pieces of T tokens from `begin` on, as many as there are, at most `most`.   (n,T)
at::Tensor pieces(const TokenStream& tokens, int64_t begin, int64_t most, int64_t T);

}  // namespace horner
