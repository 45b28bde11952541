// Files of tokenizers: tokenizer.json, GPT-2's vocab.json and merges.txt, BERT's vocab.txt.
#include <algorithm>

#include "core/check.h"
#include "core/hash.h"
#include "io/tokenizer.h"
#include "io/tokenizer/parts.h"

namespace horner {
namespace {

template <class Call>
auto within(const std::string& source, Call&& call) {
  try {
    return call();
  } catch (const DataError& error) {
    throw DataError("{}: {}", source, error.what());
  }
}

std::string named_token(const Object& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string()) {
    return (*found)["content"].get<std::string>();
  }
  return "";
}

std::optional<int32_t> first_known(
    const TokenizerParts& parts, std::initializer_list<const char*> names
) {
  for (const std::string_view name : names) {
    if (name.empty()) continue;
    for (const AddedToken& token : parts.added) {
      if (token.content == name) return token.id;
    }
    const auto found = parts.vocabulary.find(name);
    if (found != parts.vocabulary.end()) return found->second;
  }
  return std::nullopt;
}

// As tokenizer_config.json says; else by the usual names.
void find_ends(TokenizerParts& parts, const Object& config) {
  const std::string begin = named_token(config, "bos_token");
  const std::string end = named_token(config, "eos_token");
  parts.begin = first_known(parts, {begin.c_str(), "<|begin_of_text|>", "<s>", "<bos>", "[CLS]"});
  parts.end = first_known(
      parts, {end.c_str(), "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]"}
  );
}

Object parse_config(std::string_view text) {
  const Object config = text.empty() ? Object::object() : parse_object(text);
  if (!config.is_object()) throw DataError("tokenizer_config.json must be an object");
  return config;
}

std::vector<std::pair<std::string, std::string>> files_of(
    std::vector<std::pair<std::string, std::string>> files, std::string_view config
) {
  if (!config.empty()) files.emplace_back("tokenizer_config.json", config);
  return files;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// A vocabulary without one capital letter is of lower-case text.
bool has_capitals(const std::vector<std::string>& tokens) {
  return std::any_of(tokens.begin(), tokens.end(), [](const std::string& token) {
    return !token.starts_with('[') &&
           std::any_of(token.begin(), token.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  });
}

}  // namespace

Tokenizer byte_tokenizer() {
  TokenizerParts parts;
  parts.kind = "bytes";
  parts.hash = xxh128("bytes");
  parts.added = {{"<|separator|>", kByteSeparator, false, false, false, false, true}};
  parts.model = std::make_shared<ByteModel>();
  parts.decoder.byte_level = true;
  parts.begin = parts.end = kByteSeparator;
  for (int32_t byte = 0; byte < 256; ++byte) {
    parts.vocabulary[std::string(1, static_cast<char>(byte))] = byte;
  }
  return Tokenizer(std::move(parts));
}

Tokenizer parse_tokenizer_json(
    std::string_view text, const std::string& source, std::string_view config
) {
  return within(source, [&] {
    TokenizerParts parts = read_json(text);
    parts.hash = xxh128(text);
    parts.files = files_of({{"tokenizer.json", std::string(text)}}, config);
    find_ends(parts, parse_config(config));
    return Tokenizer(std::move(parts));
  });
}

Tokenizer parse_gpt2(
    std::string_view vocabulary,
    std::string_view merges,
    const std::string& source,
    std::string_view config
) {
  return within(source, [&] {
    TokenizerParts parts;
    parts.kind = "BPE";
    parts.hash = xxh128(xxh128(vocabulary) + xxh128(merges));
    parts.files = files_of(
        {{"vocab.json", std::string(vocabulary)}, {"merges.txt", std::string(merges)}}, config
    );
    parts.vocabulary = read_vocabulary(parse_object(vocabulary));
    Merges list;
    for (const std::string& line : lines_of(merges)) {
      if (!line.empty() && !line.starts_with("#version")) add_merge(list, line);
    }
    BpeOptions options;
    options.byte_level = parts.splitter.byte_level = parts.decoder.byte_level = true;
    parts.model = std::make_shared<BpeModel>(parts.vocabulary, list, options);
    parts.splitter.steps.push_back(split_by(kGpt2Pattern, Behavior::isolated));
    const auto end = parts.vocabulary.find(std::string_view("<|endoftext|>"));
    if (end != parts.vocabulary.end()) {
      parts.added.push_back({end->first, end->second, false, false, false, false, true});
    }
    find_ends(parts, parse_config(config));
    return Tokenizer(std::move(parts));
  });
}

Tokenizer parse_bert(
    std::string_view vocabulary, const std::string& source, std::string_view config
) {
  return within(source, [&] {
    TokenizerParts parts;
    parts.kind = "WordPiece";
    parts.hash = xxh128(vocabulary);
    parts.files = files_of({{"vocab.txt", std::string(vocabulary)}}, config);
    const std::vector<std::string> tokens = lines_of(vocabulary);
    for (const std::string& token : tokens) {
      parts.vocabulary.emplace(token, static_cast<int32_t>(parts.vocabulary.size()));
    }
    if (parts.vocabulary.size() != tokens.size()) throw DataError("has a token twice");
    for (const char* name : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
      const auto found = parts.vocabulary.find(std::string_view(name));
      if (found == parts.vocabulary.end()) continue;
      parts.added.push_back({name, found->second, false, false, false, false, true});
      if (found->first == "[CLS]") parts.before = {found->second};
      if (found->first == "[SEP]") parts.after = {found->second};
    }
    BertNormalizer normalizer;
    const Object settings = parse_config(config);
    const auto lower = settings.find("do_lower_case");
    const bool said = lower != settings.end() && lower->is_boolean();
    normalizer.lowercase = said ? lower->get<bool>() : !has_capitals(tokens);
    normalizer.strip_accents = normalizer.lowercase;
    parts.normalizer.push_back(normalizer);
    parts.splitter = bert_splitter();
    parts.model = std::make_shared<WordPieceModel>(parts.vocabulary, "##", "[UNK]", 100);
    parts.decoder.steps.push_back(wordpiece_decoder("##", true));
    find_ends(parts, settings);
    return Tokenizer(std::move(parts));
  });
}

}  // namespace horner
