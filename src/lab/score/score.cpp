#include "lab/score/score.h"

#include <algorithm>

#include "core/check.h"
#include "core/device.h"
#include "core/number.h"
#include "lab/score/parts.h"
#include "train/checkpoint.h"

namespace horner {
namespace {

constexpr int64_t kContext = 2048;  // tokens, if the model does not say

std::shared_ptr<Model> load(const std::string& path, at::Device device) {
  auto model = load_model(path);
  const ModelOptions& o = model->options();
  HORNER_CHECK(
      o.classes == 0 && o.output == "tokens" && o.features == 0 && model->causal(),
      "{}: is not a language model that reads forwards",
      path
  );
  model->to(device);
  return model;
}

Json json_of(const RightShare& s) { return {{"value", s.value}, {"standard_error", s.error}}; }

Json json_of(const TextScore& t) {
  Json json = {
      {"file", t.file},
      {"tokens", t.tokens},
      {"bytes", t.bytes},
      {"windows", t.windows},
      {"nats", t.nats.json()},
      {"perplexity", number_or_null(t.perplexity())},
      {"bits_per_byte", number_or_null(t.bits_per_byte)},
      {"top", t.top}};
  for (const PositionScore& p : t.by_position) {
    Json row = {{"from", p.from}, {"to", p.to}, {"tokens", p.tokens}, {"nats", p.nats}};
    if (t.against) row["kl"] = p.kl;
    json["by_position"].push_back(row);
  }
  if (t.against) {
    json["against"] = {
        {"nats", t.against->nats},
        {"difference", t.against->difference.json()},
        {"kl", t.against->kl.json()},
        {"same_top", t.against->same_top}};
  }
  return json;
}

Json json_of(const QuestionScore& q) {
  Json json = {
      {"kind", q.kind}, {"file", q.file}, {"questions", q.questions}, {"right", json_of(q.right)}};
  if (q.normalised) json["normalised"] = json_of(*q.normalised);
  if (q.chance) json["chance"] = *q.chance;
  if (q.shortest) json["shortest"] = *q.shortest;
  if (q.longest) json["longest"] = *q.longest;
  if (q.perplexity) json["perplexity"] = number_or_null(*q.perplexity);
  for (const auto& [name, share] : q.by_term) json["by_term"][name] = json_of(share);
  if (q.against) json["against"] = json_of(*q.against);
  if (q.difference) json["difference"] = q.difference->json();
  json["nats"] = q.nats;
  return json;
}

}  // namespace

Json ScoreResult::json() const {
  Json json = {{"model", model}, {"against", against}, {"device", device}, {"context", context}};
  json["texts"] = Json::array();
  json["questions"] = Json::array();
  for (const TextScore& t : texts) json["texts"].push_back(json_of(t));
  for (const QuestionScore& q : questions) json["questions"].push_back(json_of(q));
  return json;
}

std::vector<SequenceScores> Asked::scores(
    const std::vector<Sequence>& sequences, const std::string& file, const TellScore& tell
) const {
  const int64_t vocabulary = model->options().vocabulary;
  for (const Sequence& s : sequences) {
    for (const int64_t token : s.tokens) {
      if (token >= vocabulary)
        throw DataError(
            "{}: token {} is outside the model's vocabulary of {}", file, token, vocabulary
        );
    }
  }
  return score_sequences(
      *model,
      against.get(),
      sequences,
      options.batch_tokens,
      device,
      [&](size_t done, size_t total) {
        if (tell) tell(done, total, file);
      }
  );
}

std::optional<int64_t> Asked::prefix() const {
  if (tokenizer.begin()) return *tokenizer.begin();
  if (tokenizer.end()) return *tokenizer.end();
  return {};
}

size_t Asked::limited(size_t all) const {
  return options.limit > 0 ? std::min(all, size_t(options.limit)) : all;
}

Sequence answer_after(const Asked& asked, std::string question, std::string answer) {
  const size_t end = question.find_last_not_of(" \t\n\r\f\v") + 1;  // 0 if there is nothing else
  answer = question.substr(end) + answer;
  question.resize(end);
  const auto encode = [&](const std::string& text) {
    return asked.tokenizer.encode(text, {.control = false});
  };
  Sequence s;
  if (question.empty()) {
    HORNER_CHECK(
        asked.prefix(), "the tokenizer has no token that begins or ends a document to score after"
    );
    s.tokens.push_back(*asked.prefix());
  }
  // The tokens of the question alone, then those of both behind as many: where the last letters of a question go into another
  // token before an answer, lm-evaluation-harness reads this, too.
  const std::vector<int32_t> whole = encode(question + answer);
  size_t read = 0;
  if (!question.empty()) {
    const std::vector<int32_t> alone = encode(question);
    s.tokens.assign(alone.begin(), alone.end());
    s.first = int64_t(s.tokens.size());
    read = std::min(s.tokens.size(), whole.size());
  }
  s.tokens.insert(s.tokens.end(), whole.begin() + long(read), whole.end());
  if (s.scored() < 1 || s.first < 1) throw DataError("'{}' has no token of its own", answer);
  const int64_t surplus = int64_t(s.tokens.size()) - asked.context - 1;
  if (surplus > 0) {
    HORNER_CHECK(
        s.first > surplus, "an answer has {} tokens; context is {}", s.scored(), asked.context
    );
    s.tokens.erase(s.tokens.begin(), s.tokens.begin() + surplus);
    s.first -= surplus;
  }
  return s;
}

ScoreResult score(const std::string& name, const ScoreOptions& o, const TellScore& tell) {
  HORNER_CHECK(
      !o.text.empty() || !o.choices.empty() || !o.pairs.empty() || !o.last_word.empty(),
      "nothing to score: give --text, --choices, --pairs or --last_word"
  );
  for (const auto& [setting, value] :
       {std::pair{"context", o.context}, {"stride", o.stride}, {"limit", o.limit}})
    HORNER_CHECK(value >= 0, "{} must be at least 0, got {}", setting, value);
  HORNER_CHECK(o.batch_tokens >= 1, "batch_tokens must be at least 1, got {}", o.batch_tokens);
  const at::Device device = find_device(o.device);
  Asked asked{load(name, device), nullptr, load_tokenizer_of(name), 0, device, o};
  int64_t longest = asked.model->options().positions;
  if (!o.against.empty()) {
    asked.against = load(o.against, device);
    const int64_t own = asked.model->options().vocabulary;
    const int64_t other = asked.against->options().vocabulary;
    HORNER_CHECK(
        own == other && asked.tokenizer.hash() == load_tokenizer_of(o.against).hash(),
        "{} and {} have different tokens ({} and {})",
        name,
        o.against,
        own,
        other
    );
    const int64_t positions = asked.against->options().positions;
    if (positions > 0) longest = longest > 0 ? std::min(longest, positions) : positions;
  }
  HORNER_CHECK(
      longest == 0 || o.context <= longest, "context: a model has {} positions only", longest
  );
  asked.context = o.context > 0 ? o.context : longest > 0 ? longest : kContext;
  HORNER_CHECK(
      o.stride <= asked.context,
      "stride must be at most context = {}, got {}",
      asked.context,
      o.stride
  );
  ScoreResult result{name, o.against, describe_device(device), asked.context, {}, {}};
  for (const std::string& path : o.text) result.texts.push_back(score_text(asked, path, tell));
  for (const std::string& path : o.choices)
    result.questions.push_back(score_choices(asked, path, tell));
  for (const std::string& path : o.pairs)
    result.questions.push_back(score_pairs(asked, path, tell));
  for (const std::string& path : o.last_word)
    result.questions.push_back(score_last_word(asked, path, tell));
  return result;
}

}  // namespace horner
