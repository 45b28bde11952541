#include "tasks/text/corpus.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "core/check.h"
#include "core/hash.h"
#include "core/random.h"
#include "io/compressed.h"
#include "io/tokenizer/parts.h"
#include "io/tokenizer/unicode.h"
#include "model/formats/known.h"
#include "tasks/text/grammar.h"

namespace horner {
namespace {

constexpr int64_t kCached = 4 << 20;     // bytes of files from which on tokens are kept
constexpr size_t kWholeDocuments = 100;  // from which on a split consists of whole documents
constexpr size_t kGrammarBytes = 512 << 10;

using Documents = std::vector<std::string>;

// Where validation or test come from.
struct Part {
  double share = 0;
  std::optional<TextFiles> files;
};

Part read_part(const std::vector<std::string>& text, const char* name) {
  Part part;
  double share = 0;
  const std::string first = text.empty() ? "0" : text[0];
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), share);
  if (text.size() > 1 || error != std::errc() || end != first.data() + first.size()) {
    part.files = find_text(text);
    return part;
  }
  HORNER_CHECK(share >= 0 && share < 1, "[text] {} must be from 0 to below 1, got {}", name, share);
  part.share = share;
  return part;
}

Documents read_documents(const TextFiles& files, const CorpusOptions& o) {
  if (files.grammar) return grammar_documents(uint64_t(o.seed), kGrammarBytes);
  Documents documents;
  for (const TextFile& file : files.files) {
    for (std::string& document : cut_documents(read_decompressed(file.path), o.documents)) {
      documents.push_back(std::move(document));
    }
  }
  return documents;
}

size_t character_end(const std::string& text, double place) {
  size_t end = static_cast<size_t>(place);
  while (end < text.size() && (text[end] & 0xc0) == 0x80) ++end;
  return end;
}

void split_each(const Documents& documents, double valid, double test, Documents (&parts)[3]) {
  for (const std::string& document : documents) {
    const auto n = static_cast<double>(document.size());
    const size_t a = character_end(document, n * (1 - valid - test));
    const size_t b = std::max(a, character_end(document, n * (1 - test)));
    parts[0].push_back(document.substr(0, a));
    if (b > a) parts[1].push_back(document.substr(a, b - a));
    if (b < document.size()) parts[2].push_back(document.substr(b));
  }
}

void split_whole(
    Documents& documents, double valid, double test, uint64_t seed, Documents (&parts)[3]
) {
  double total = 0, taken = 0;
  for (const std::string& document : documents) total += double(document.size());
  std::vector<size_t> part_of(documents.size());
  for (const int64_t i : permutation(seed, Split::train, 0, int64_t(documents.size()))) {
    part_of[size_t(i)] = taken < valid * total ? 1 : taken < (valid + test) * total ? 2 : 0;
    taken += double(documents[size_t(i)].size());
  }
  for (size_t i = 0; i < documents.size(); ++i) {
    parts[part_of[i]].push_back(std::move(documents[i]));
  }
}

struct Sources {
  TextFiles train;
  Part valid, test;
  Json json() const {
    Json list = train.json();
    for (const Part* part : {&valid, &test}) {
      if (!part->files) continue;
      for (const Json& file : part->files->json()) list.push_back(file);
    }
    return list;
  }
  std::string hash() const { return xxh128(to_line(json())); }
};

Sources find_sources(const CorpusOptions& o) {
  Sources sources{find_text(o.data), read_part(o.valid, "valid"), read_part(o.test, "test")};
  HORNER_CHECK(
      sources.valid.share + sources.test.share < 1,
      "[text] valid and test must leave something to train on, got {} and {}",
      sources.valid.share,
      sources.test.share
  );
  HORNER_CHECK(
      sources.valid.share > 0 || sources.valid.files, "[text] valid must be above 0, or name files"
  );
  return sources;
}

void read_splits(const Sources& sources, const CorpusOptions& o, Documents (&parts)[3]) {
  Documents documents = read_documents(sources.train, o);
  if (documents.size() >= kWholeDocuments) {
    split_whole(documents, sources.valid.share, sources.test.share, uint64_t(o.seed), parts);
  } else {
    split_each(documents, sources.valid.share, sources.test.share, parts);
  }
  if (sources.valid.files) parts[1] = read_documents(*sources.valid.files, o);
  if (sources.test.files) parts[2] = read_documents(*sources.test.files, o);
}

TokenSplits tokenize(const Documents (&parts)[3], const Tokenizer& tokenizer, bool same_test) {
  TokenSplits splits;
  for (size_t i = 0; i < 3; ++i) {
    std::vector<uint32_t> tokens;
    const auto separate = [&] {
      if (tokenizer.end()) tokens.push_back(uint32_t(*tokenizer.end()));
    };
    separate();
    for (const std::string& document : parts[i]) {
      const auto ids = tokenizer.encode(document, {.control = false});
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      separate();
      splits.bytes[i] += double(document.size());
    }
    splits.streams[i] = TokenStream(std::move(tokens));
  }
  if (same_test) {
    splits.streams[2] = splits.streams[1];
    splits.bytes[2] = splits.bytes[1];
  }
  return splits;
}

bool are_tokens(const TextFiles& files) {
  const auto is_token_file = [](const TextFile& file) { return file.path.ends_with(".bin"); };
  return !files.files.empty() && std::all_of(files.files.begin(), files.files.end(), is_token_file);
}

TokenStream read_token_files(const TextFiles& files) {
  if (!are_tokens(files)) throw DataError("[text] either all files are tokens (.bin) or none");
  if (files.files.size() == 1) return read_token_file(files.files[0].path);
  std::vector<uint32_t> all;
  for (const TextFile& file : files.files) {
    const TokenStream part = read_token_file(file.path);
    for (int64_t i = 0; i < part.size(); ++i) all.push_back(uint32_t(part[i]));
  }
  return TokenStream(std::move(all));
}

TokenSplits token_splits(const Sources& sources, const Tokenizer& tokenizer) {
  TokenSplits splits;
  const TokenStream all = read_token_files(sources.train);
  const auto place = [&](double share) { return int64_t(double(all.size()) * (1 - share)); };
  const int64_t a = place(sources.valid.share + sources.test.share), b = place(sources.test.share);
  splits.streams = {all.slice(0, a), all.slice(a, b), all.slice(b, all.size())};
  if (sources.valid.files) splits.streams[1] = read_token_files(*sources.valid.files);
  if (sources.test.files) splits.streams[2] = read_token_files(*sources.test.files);
  if (sources.test.share == 0 && !sources.test.files) splits.streams[2] = splits.streams[1];
  for (size_t i = 0; i < 3; ++i) {
    const TokenStream& stream = splits.streams[i];
    for (int64_t t = 0; t < stream.size(); ++t) {
      if (stream[t] >= tokenizer.vocabulary()) {
        throw DataError(
            "[text] there is a token {} in the data, and {} in the vocabulary",
            stream[t],
            tokenizer.vocabulary()
        );
      }
      splits.bytes[i] += double(tokenizer.bytes(int32_t(stream[t])).size());
    }
  }
  return splits;
}

Tokenizer character_tokenizer(const Documents (&parts)[3]) {
  std::set<int32_t> characters;
  for (const Documents& documents : parts) {
    for (std::string_view rest : documents) {
      while (!rest.empty()) {
        const CodePoint next = code_point(rest);
        if (next.value < 0) throw DataError("[text] characters=true needs UTF-8");
        characters.insert(next.value);
        rest.remove_prefix(next.size);
      }
    }
  }
  TokenizerParts made;
  made.kind = "characters";
  for (const int32_t character : characters) {
    std::string token;
    append_utf8(token, character);
    made.vocabulary.emplace(token, int32_t(made.vocabulary.size()));
  }
  made.model = std::make_shared<BpeModel>(made.vocabulary, Merges(), BpeOptions());
  Json json = {{"version", "1.0"}, {"decoder", {{"type", "Fuse"}}}};
  json["model"] = {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}};
  for (const auto& [token, id] : made.vocabulary) json["model"]["vocab"][token] = id;
  made.files = {{"tokenizer.json", json.dump(1) + "\n"}};
  return Tokenizer(std::move(made));
}

// Nothing if there are none, or if their file is damaged: then it is written again from the text.
std::optional<TokenSplits> kept_tokens(const std::string& path) {
  try {
    return read_tokens(path);
  } catch (const DataError&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<std::string> cut_documents(const std::string& text, const std::string& rule) {
  if (rule == "file") return {text};
  const std::string end = rule == "line" ? "\n" : rule == "blank" ? "\n\n" : rule;
  HORNER_CHECK(!end.empty(), "[text] documents must be file, line, blank or what ends one");
  std::vector<std::string> documents;
  for (size_t at = 0; at < text.size();) {
    const size_t found = std::min(text.find(end, at), text.size());
    if (found > at) documents.push_back(text.substr(at, found - at));
    at = found + end.size();
  }
  return documents;
}

Corpus make_corpus(const CorpusOptions& o, const Tokenizer& tokenizer) {
  const Sources sources = find_sources(o);
  if (are_tokens(sources.train))
    return {tokenizer, token_splits(sources, tokenizer), sources.json()};
  const bool same_test = sources.test.share == 0 && !sources.test.files;
  const bool cached = sources.train.bytes() >= kCached;
  std::string path;
  if (cached) {
    const std::string settings = fmt::format(
        "2 {} {} {} {} {} {}",
        sources.hash(),
        tokenizer.hash(),
        o.documents,
        sources.valid.share,
        sources.test.share,
        o.seed
    );
    const std::string folder = o.cache.empty() ? cache_folder() + "/tokens" : o.cache;
    path = fmt::format("{}/{}.tokens", folder, xxh128(settings));
    if (auto splits = kept_tokens(path)) return {tokenizer, std::move(*splits), sources.json()};
  }
  Documents parts[3];
  read_splits(sources, o, parts);
  TokenSplits splits = tokenize(parts, tokenizer, same_test);
  if (cached) {
    make_folder(std::filesystem::path(path).parent_path());
    write_tokens(path, splits, tokenizer.vocabulary());
    splits = *read_tokens(path);
  }
  return {tokenizer, std::move(splits), sources.json()};
}

Corpus make_character_corpus(const CorpusOptions& o) {
  const Sources sources = find_sources(o);
  Documents parts[3];
  read_splits(sources, o, parts);
  const Tokenizer tokenizer = character_tokenizer(parts);
  const bool same_test = sources.test.share == 0 && !sources.test.files;
  return {tokenizer, tokenize(parts, tokenizer, same_test), sources.json()};
}

int64_t wikitext_words(std::string_view text) {
  int64_t words = 0;
  bool in_word = false;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n';
    words += (!space && !in_word) + (c == '\n');
    in_word = !space;
  }
  return words;
}

}  // namespace horner
