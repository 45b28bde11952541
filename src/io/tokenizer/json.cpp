#include <algorithm>

#include "core/check.h"
#include "io/tokenizer/parts.h"

namespace horner {
namespace {

constexpr int64_t kIdLimit = int64_t{1} << 21;

int32_t read_id(const Object& json, const std::string& token) {
  const bool good =
      json.is_number_integer() && json.get<int64_t>() >= 0 && json.get<int64_t>() < kIdLimit;
  if (!good)
    throw DataError("the id of {} must be an integer from 0 to {}", in_quotes(token), kIdLimit);
  return json.get<int32_t>();
}

Merges read_merges(const Object& json) {
  Merges merges;
  if (!json.is_array()) throw DataError("merges must be a list");
  for (const Object& merge : json) {
    if (merge.is_string()) {
      add_merge(merges, merge.get<std::string>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      throw DataError("a merge must be two tokens");
    }
  }
  return merges;
}

void refuse_text(Spec& spec, const char* key) {
  if (!spec.text(key, "").empty()) throw DataError("{}: {} is not supported", spec.name(), key);
}

void read_model(const Object& json, TokenizerParts& parts) {
  Spec spec(json, "model");
  std::string type = spec.type();
  if (type.empty() && json.contains("merges")) type = "BPE";  // files from before 2022 do not say
  parts.kind = type;
  if (type == "BPE") {
    BpeOptions options;
    options.byte_level = parts.splitter.byte_level;
    options.byte_fallback = spec.boolean("byte_fallback", false);
    options.fuse_unknown = spec.boolean("fuse_unk", false);
    options.ignore_merges = spec.boolean("ignore_merges", false);
    if (spec.find("unk_token")) options.unknown = spec.text("unk_token", "");
    refuse_text(spec, "continuing_subword_prefix");
    refuse_text(spec, "end_of_word_suffix");
    const Object* dropout = spec.find("dropout");
    if (dropout && *dropout != 0.0) throw DataError("model BPE: dropout is not supported");
    parts.vocabulary = read_vocabulary(spec.at("vocab"));
    parts.model =
        std::make_shared<BpeModel>(parts.vocabulary, read_merges(spec.at("merges")), options);
  } else if (type == "WordPiece") {
    parts.vocabulary = read_vocabulary(spec.at("vocab"));
    parts.model = std::make_shared<WordPieceModel>(
        parts.vocabulary,
        spec.text("continuing_subword_prefix", "##"),
        spec.text("unk_token", "[UNK]"),
        spec.integer("max_input_chars_per_word", 100)
    );
  } else {
    spec.refuse_type();
  }
  spec.done();
}

std::vector<AddedToken> read_added(const Object* json) {
  std::vector<AddedToken> tokens;
  if (!json) return tokens;
  if (!json->is_array()) throw DataError("added_tokens must be a list");
  for (const Object& item : *json) {
    Spec spec(item, "an added token");
    AddedToken token;
    token.content = spec.text("content", "");
    token.id = read_id(spec.at("id"), token.content);
    token.single_word = spec.boolean("single_word", false);
    token.lstrip = spec.boolean("lstrip", false);
    token.rstrip = spec.boolean("rstrip", false);
    token.special = spec.boolean("special", false);
    token.normalized = spec.boolean("normalized", !token.special);
    spec.done();
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// {"id": "[CLS]", "ids": [101], "tokens": …} of TemplateProcessing's special_tokens.
std::vector<int32_t> template_ids(const Object& specials, const std::string& name) {
  const auto found = specials.find(name);
  if (found == specials.end())
    throw DataError("post_processor has no special token {}", in_quotes(name));
  Spec spec(*found, "special token");
  std::vector<int32_t> ids;
  for (const Object& id : spec.at("ids")) ids.push_back(read_id(id, name));
  spec.ignore({"id", "tokens"});
  spec.done();
  return ids;
}

void read_template(Spec& spec, std::vector<int32_t>& before, std::vector<int32_t>& after) {
  const Object none = Object::object();
  const Object* specials = spec.find("special_tokens");
  bool seen = false;
  for (const Object& part : spec.at("single")) {
    Spec item(part, "post_processor single");
    const Object* token = item.find("SpecialToken");
    const Object* sequence = item.find("Sequence");
    item.done();
    if ((token == nullptr) == (sequence == nullptr) || (sequence && seen)) {
      throw DataError("post_processor: single must have one Sequence among SpecialTokens");
    }
    seen = seen || sequence;
    if (!token) continue;
    Spec named(*token, "SpecialToken");
    named.ignore({"type_id"});  // segments are not reported
    const auto ids = template_ids(specials ? *specials : none, named.text("id", ""));
    named.done();
    auto& list = seen ? after : before;
    list.insert(list.end(), ids.begin(), ids.end());
  }
  spec.ignore({"pair"});
}

// ["[SEP]", 102]
int32_t named_id(Spec& spec, const char* key) {
  const Object& pair = spec.at(key);
  if (!pair.is_array() || pair.size() != 2)
    throw DataError("{}: {} must be a pair", spec.name(), key);
  return read_id(pair[1], key);
}

void read_around(const Object& json, TokenizerParts& parts) {
  Spec spec(json, "post_processor");
  const std::string& type = spec.type();
  std::vector<int32_t> before, after;
  if (type == "Sequence") {
    for (const Object& step : spec.at("processors")) read_around(step, parts);
  } else if (type == "TemplateProcessing") {
    read_template(spec, before, after);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    before = {named_id(spec, "cls")};
    after = {named_id(spec, "sep")};
    spec.ignore({"trim_offsets", "add_prefix_space"});  // of places, which are not reported
  } else if (type == "ByteLevel") {
    spec.ignore({"add_prefix_space", "trim_offsets", "use_regex"});  // likewise
  } else {
    spec.refuse_type();
  }
  spec.done();
  parts.before.insert(parts.before.begin(), before.begin(), before.end());
  parts.after.insert(parts.after.end(), after.begin(), after.end());
}

}  // namespace

Vocabulary read_vocabulary(const Object& json) {
  if (!json.is_object()) throw DataError("the vocabulary must be an object");
  Vocabulary vocabulary;
  vocabulary.reserve(json.size());
  for (const auto& [token, id] : json.items()) vocabulary.emplace(token, read_id(id, token));
  return vocabulary;
}

void add_merge(Merges& merges, const std::string& line) {
  const size_t space = line.find(' ', 1);
  if (space == line.npos || space + 1 == line.size() || line.find(' ', space + 1) != line.npos) {
    throw DataError("the merge {} must be two tokens with a space between", in_quotes(line));
  }
  merges.emplace_back(line.substr(0, space), line.substr(space + 1));
}

TokenizerParts read_json(std::string_view text) {
  const Object json = parse_object(text);
  Spec spec(json, "the file");
  TokenizerParts parts;
  parts.added = read_added(spec.find("added_tokens"));
  parts.normalizer = read_normalizer(spec.find("normalizer"));
  parts.splitter = read_splitter(spec.find("pre_tokenizer"));
  read_model(spec.at("model"), parts);
  if (const Object* around = spec.find("post_processor")) read_around(*around, parts);
  parts.decoder = read_decoder(spec.find("decoder"));
  spec.ignore({"version", "truncation", "padding"});  // see tokenizer.h
  spec.done();
  return parts;
}

}  // namespace horner
