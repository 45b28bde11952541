// From files to streams of tokens.
//
//   files -> documents -> train, valid, test -> separator, document, separator, document, ..., separator
//
// A share for validation or test is taken from whole documents in a keyed order where there are at
// least 100 of them, else from the end of each: first training, then validation, then test. Tokens of
// more than 4 MB of files are kept in the user's cache folder, under a name made from the hashes of
// the files, the tokenizer and the settings, and mapped from there.
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

// Sorted distinct characters of the text as tokens, no separator: only for numbers that were
// published so.
Corpus make_character_corpus(const CorpusOptions& options);

std::vector<std::string> cut_documents(const std::string& text, const std::string& rule);

// Words of a file of WikiText: what stands between spaces, and one <eos> per line.
int64_t wikitext_words(std::string_view text);

}  // namespace horner
