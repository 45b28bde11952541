// From files to streams of tokens.
//
//   files -> documents -> train, valid, test -> separator, document, separator, document, ..., separator
//
// With at least 100 documents, a share for validation or test is whole documents in a keyed order. With fewer, it is the end
// of each document: first training, then validation, then test. If the files have more than 4 MB, their tokens are kept in
// the user's cache folder and mapped from there. The name of that file is made from the hashes of the files, the tokenizer
// and the settings.
//
// Files that end in .bin hold tokens already, see token_stream.h; a share is then cut from their end.
#pragma once

#include "io/text_files.h"
#include "io/tokenizer.h"
#include "tasks/text/token_stream.h"

namespace horner {

struct CorpusOptions {
  std::vector<std::string> data;
  std::vector<std::string> valid = {"0.05"};
  std::vector<std::string> test = {"0.05"};
  std::string documents = "file";
  std::string cache;
  int64_t seed = 1234;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("data", data, "files or folders; empty: what is there; grammar: made up");
    visit("valid", valid, "share of the text for validation, or files");
    visit("test", test, "share of the text for the test, or files; 0: validation once more");
    visit(
        "documents", documents, "what one is: file, line, blank (empty lines between), or its end"
    );
    visit("cache", cache, "folder of token files; empty: the user's cache folder");
    visit("seed", seed, "seed of the data");
  }
};

struct Corpus {
  Tokenizer tokenizer;
  TokenSplits splits;
  Json sources;
};

Corpus make_corpus(const CorpusOptions& options, const Tokenizer& tokenizer);

// Sorted distinct characters of the text as tokens, no separator: only to compare with numbers that were published this way.
Corpus make_character_corpus(const CorpusOptions& options);

std::vector<std::string> cut_documents(const std::string& text, const std::string& rule);

// Words of a WikiText file: the text between spaces, and one <eos> per line.
int64_t wikitext_words(std::string_view text);

}  // namespace horner
