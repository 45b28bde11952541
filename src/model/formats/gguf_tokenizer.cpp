// The tokenizer in GGUF metadata, written as a tokenizer.json: one reader knows how tokenizers work, and a model that is trained
// further keeps the file.
//
//   tokenizer.ggml.model   what it is
//   gpt2                   BPE of bytes; tokenizer.ggml.pre names how text is cut first
//   bert                   WordPiece of lower-case words; a token that begins a word has U+2581 before it, others stand for ##token
//   llama                  SentencePiece: the pair whose token has the highest score is joined first. The space before a text is
//                          put after a special token too, as llama.cpp and transformers do
#include "model/formats/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/json.h"

namespace horner {
namespace {

using Sorted = nlohmann::json;  // horner::Json searches linearly, too slow for a vocabulary

enum TokenType { kUnknown = 2, kControl = 3, kUser = 4, kByte = 6 };

constexpr char kLlama3[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen2[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Source {
  const GgufHeader& header;
  std::vector<std::string> tokens;
  std::vector<double> types;  // empty: all are normal
  bool is(size_t id, TokenType type) const {
    return id < types.size() && types[id] == double(type);
  }
};

Sorted bytes_step(bool by_words) {
  return {
      {"type", "ByteLevel"},
      {"add_prefix_space", false},
      {"trim_offsets", true},
      {"use_regex", by_words}};
}

Sorted cut_by(const char* regex) {
  const Sorted split = {
      {"type", "Split"},
      {"pattern", {{"Regex", regex}}},
      {"behavior", "Isolated"},
      {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, bytes_step(false)}}};
}

// How text is cut before BPE.
Sorted pre_tokenizer(const std::string& pre, const std::string& source) {
  if (pre == "smollm")
    return {
        {"type", "Sequence"},
        {"pretokenizers",
         {Sorted{{"type", "Digits"}, {"individual_digits", true}}, bytes_step(true)}}};
  if (pre == "gpt-2" || pre == "default") return bytes_step(true);
  if (pre == "llama-bpe") return cut_by(kLlama3);
  if (pre == "qwen2") return cut_by(kQwen2);
  throw DataError(
      "{}: tokenizer.ggml.pre = '{}' is not known; these are: gpt-2, smollm, llama-bpe, qwen2",
      source,
      pre.substr(0, 100)
  );
}

void add_bytes_bpe(const Source& from, Sorted& json) {
  const std::string pre = from.header.text("tokenizer.ggml.pre").value_or("default");
  json["pre_tokenizer"] = pre_tokenizer(pre, from.header.source);
  if (pre == "qwen2") json["normalizer"] = {{"type", "NFC"}};
  json["decoder"] = bytes_step(true);
  Sorted merges = Sorted::array();
  for (const std::string& merge : from.header.texts("tokenizer.ggml.merges")) {
    if (!is_utf8(merge)) throw DataError("{}: a merge is not UTF-8", from.header.source);
    merges.push_back(merge);
  }
  json["model"]["merges"] = std::move(merges);
  if (pre == "llama-bpe") json["model"]["ignore_merges"] = true;
}

// The merges that join, at each step, the pair of neighbours whose token has the highest score.
Sorted merges_by_score(const Source& from, const Sorted& vocabulary) {
  const std::vector<double> scores = from.header.numbers("tokenizer.ggml.scores");
  if (scores.size() != from.tokens.size())
    throw DataError(
        "{}: has {} tokens and {} scores", from.header.source, from.tokens.size(), scores.size()
    );
  if (std::any_of(scores.begin(), scores.end(), [](double score) { return std::isnan(score); }))
    throw DataError("{}: a score of a token is no number", from.header.source);
  std::vector<size_t> order;
  for (size_t id = 0; id < from.tokens.size(); ++id) {
    if (!from.is(id, kControl) && !from.is(id, kByte) && !from.is(id, kUnknown))
      order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return scores[a] > scores[b];
  });
  constexpr size_t kLongest = 512;  // bytes of a token that is made of others
  Sorted merges = Sorted::array();
  for (const size_t id : order) {
    const std::string& token = from.tokens[id];
    for (size_t cut = 1; token.size() <= kLongest && cut < token.size(); ++cut) {
      const std::string left = token.substr(0, cut), right = token.substr(cut);
      if (vocabulary.contains(left) && vocabulary.contains(right))
        merges.push_back(Sorted::array({left, right}));
    }
  }
  return merges;
}

void add_sentencepiece(const Source& from, Sorted& json) {
  const bool space = from.header.flag("tokenizer.ggml.add_space_prefix").value_or(true);
  const Sorted spaces = {
      {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  Sorted steps = Sorted::array();
  if (space) steps.push_back({{"type", "Prepend"}, {"prepend", "\u2581"}});
  steps.push_back(spaces);
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  Sorted decoders = {
      {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
      {{"type", "ByteFallback"}},
      {{"type", "Fuse"}}};
  if (space) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  json["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
  json["model"]["byte_fallback"] = true;
  json["model"]["fuse_unk"] = true;
  for (size_t id = 0; id < from.tokens.size(); ++id) {
    if (from.is(id, kUnknown)) json["model"]["unk_token"] = from.tokens[id];
  }
  json["model"]["merges"] = merges_by_score(from, json["model"]["vocab"]);
}

// What llama.cpp does with every model of this kind: text is lower-case and without accents. Control tokens stand as they are.
void add_wordpiece(const Source& from, Sorted& json) {
  constexpr std::string_view kBegin = "\u2581";
  Sorted vocabulary = Sorted::object();
  for (size_t id = 0; id < from.tokens.size(); ++id) {
    const std::string& token = from.tokens[id];
    const bool begins = token.starts_with(kBegin);
    const bool named = token.starts_with('[') && token.ends_with(']');  // [CLS], [unused7]
    const bool whole = named || from.is(id, kControl) || from.is(id, kUnknown);
    const std::string ours = whole ? token : begins ? token.substr(kBegin.size()) : "##" + token;
    if (!vocabulary.emplace(ours, id).second)
      throw DataError("{}: token {} is there twice", from.header.source, id);
  }
  const auto name = [&](const char* key, const char* usual) {
    const auto id = from.header.integer(fmt::format("tokenizer.ggml.{}_token_id", key));
    const bool there = id && *id >= 0 && size_t(*id) < from.tokens.size();
    return there ? from.tokens[size_t(*id)] : usual;
  };
  json["normalizer"] = {
      {"type", "BertNormalizer"},
      {"clean_text", true},
      {"handle_chinese_chars", true},
      {"strip_accents", nullptr},
      {"lowercase", true}};
  json["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  json["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  json["model"] = {
      {"type", "WordPiece"},
      {"unk_token", name("unknown", "[UNK]")},
      {"continuing_subword_prefix", "##"},
      {"max_input_chars_per_word", 100},
      {"vocab", std::move(vocabulary)}};
}

Sorted added_tokens(const Source& from) {
  Sorted list = Sorted::array();
  for (size_t id = 0; id < from.tokens.size(); ++id) {
    const bool special = from.is(id, kControl) || from.is(id, kUnknown);
    if (!special && !from.is(id, kUser)) continue;
    list.push_back({{"id", id}, {"content", from.tokens[id]}, {"special", special}});
    list.back()["normalized"] = false;
  }
  return list;
}

// Tokens before and after a text; null: none.
Sorted surrounding(const Sorted& before, const Sorted& after) {
  Sorted single = Sorted::array(), specials = Sorted::object();
  const auto add = [&](const Sorted& token) {
    single.push_back({{"SpecialToken", {{"id", token["token"]}, {"type_id", 0}}}});
    specials[token["token"].get<std::string>()] = {
        {"id", token["token"]},
        {"ids", Sorted::array({token["id"]})},
        {"tokens", Sorted::array({token["token"]})}};
  };
  if (!before.is_null()) add(before);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (!after.is_null()) add(after);
  if (single.size() == 1) return nullptr;
  return {
      {"type", "TemplateProcessing"},
      {"single", single},
      {"pair", Sorted::array()},
      {"special_tokens", specials}};
}

}  // namespace

std::optional<Tokenizer> gguf_tokenizer(const GgufHeader& header) {
  const std::optional<std::string> kind = header.text("tokenizer.ggml.model");
  if (!kind) return {};
  if (*kind != "gpt2" && *kind != "llama" && *kind != "bert")
    throw DataError(
        "{}: tokenizer.ggml.model = '{}' is not known; gpt2, llama and bert are",
        header.source,
        kind->substr(0, 100)
    );
  const Source from{
      header, header.texts("tokenizer.ggml.tokens"), header.numbers("tokenizer.ggml.token_type")};
  Sorted vocabulary = Sorted::object();
  for (size_t id = 0; id < from.tokens.size(); ++id) {
    if (!is_utf8(from.tokens[id]) || !vocabulary.emplace(from.tokens[id], id).second)
      throw DataError("{}: token {} is not UTF-8, or is there twice", header.source, id);
  }
  const auto token = [&](const char* name) -> Sorted {  // {id, token}, or null
    const auto id = header.integer(fmt::format("tokenizer.ggml.{}_token_id", name));
    if (!id || *id < 0 || size_t(*id) >= from.tokens.size()) return nullptr;
    return {{"id", *id}, {"token", from.tokens[size_t(*id)]}};
  };
  const bool words = *kind == "bert";
  const auto first = [&](std::initializer_list<const char*> names) -> Sorted {
    for (const char* name : names) {
      if (const Sorted found = token(name); !found.is_null()) return found;
    }
    return nullptr;
  };
  // The misspelled key is that of the format.
  const Sorted bos = words ? first({"cls", "bos"}) : token("bos");
  const Sorted eos = words ? first({"seperator", "eos"}) : token("eos");
  const bool begins = words || *kind == "llama" || header.text("tokenizer.ggml.pre") == "llama-bpe";
  const auto asked = [&](const char* name, bool usual, const Sorted& id) {
    const bool wanted =
        header.flag(fmt::format("tokenizer.ggml.add_{}_token", name)).value_or(usual);
    return wanted || words ? id : Sorted(nullptr);
  };
  Sorted json = {
      {"version", "1.0"},
      {"added_tokens", added_tokens(from)},
      {"normalizer", nullptr},
      {"pre_tokenizer", nullptr},
      {"post_processor", surrounding(asked("bos", begins, bos), asked("eos", false, eos))},
      {"model", {{"type", "BPE"}, {"vocab", std::move(vocabulary)}}}};
  if (words) {
    add_wordpiece(from, json);
  } else if (*kind == "gpt2") {
    add_bytes_bpe(from, json);
  } else {
    add_sentencepiece(from, json);
  }
  Sorted config = Sorted::object();
  if (!bos.is_null()) config["bos_token"] = bos["token"];
  if (!eos.is_null()) config["eos_token"] = eos["token"];
  return parse_tokenizer_json(json.dump(), header.source, config.dump());
}

}  // namespace horner
