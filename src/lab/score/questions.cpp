// Questions with a right answer: choices, pairs of sentences, the last word of a passage.
#include <algorithm>
#include <cmath>
#include <map>

#include "core/check.h"
#include "io/compressed.h"
#include "lab/score/parts.h"

namespace horner {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  const std::string text = read_decompressed(path);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (lines.empty()) throw DataError("{}: is empty", path);
  return lines;
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == '\t') {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

// A line of a file, for messages.
std::string place(const std::string& path, size_t line) {
  return fmt::format("{}:{}", path, line + 1);
}

std::string text_in(const Json& row, const char* key, const std::string& where) {
  if (!row.is_object() || !row.contains(key) || !row[key].is_string())
    throw DataError("{}: has no text '{}'", where, key);
  return row[key].get<std::string>();
}

RightShare share_of(const std::vector<double>& right) {
  return {mean(right), deviation(right) / std::sqrt(double(right.size()))};
}

size_t characters(const std::string& text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

struct Choices {
  std::vector<Sequence> sequences;  // one per choice
  std::vector<size_t> lengths;      // characters of each choice
  size_t answer = 0;
};

// With a suffix, which all choices share, only the suffix is scored: after each choice without it.
Choices read_choices(const Asked& asked, const std::string& line, const std::string& where) {
  const Json row = parse_json(line, where);
  const std::string context = text_in(row, "context", where);
  const std::string suffix = row.contains("suffix") ? text_in(row, "suffix", where) : "";
  if (!row.contains("choices") || !row["choices"].is_array() || row["choices"].size() < 2)
    throw DataError("{}: has no list 'choices' of at least two", where);
  Choices question;
  for (const Json& choice : row["choices"]) {
    if (!choice.is_string() || !choice.get<std::string>().ends_with(suffix))
      throw DataError("{}: a choice is no text that ends with the suffix", where);
    const std::string text = choice.get<std::string>();
    const std::string begin = text.substr(0, text.size() - suffix.size());
    question.sequences.push_back(
        suffix.empty() ? answer_after(asked, context, " " + text)
                       : answer_after(asked, context + " " + begin, suffix)
    );
    question.lengths.push_back(characters(suffix.empty() ? text : suffix));
  }
  if (!row.contains("answer") || !row["answer"].is_number_unsigned() ||
      row["answer"].get<size_t>() >= question.sequences.size())
    throw DataError("{}: 'answer' must be the place of a choice, from 0", where);
  question.answer = row["answer"].get<size_t>();
  return question;
}

// The place of the smallest; of equal ones the first, as in lm-evaluation-harness.
size_t smallest(const std::vector<double>& x) {
  return size_t(std::min_element(x.begin(), x.end()) - x.begin());
}

// Whether the model's choice is right: by the nats of each choice, and by its nats per character.
std::pair<bool, bool> chooses_right(const Choices& question, const std::vector<double>& nats) {
  std::vector<double> per_character;
  for (size_t c = 0; c < nats.size(); ++c)
    per_character.push_back(nats[c] / std::max<double>(1, double(question.lengths[c])));
  return {smallest(nats) == question.answer, smallest(per_character) == question.answer};
}

void compare(
    QuestionScore& result, const std::vector<double>& right, const std::vector<double>& other
) {
  if (other.empty()) return;
  result.against = share_of(other);
  result.difference = paired_bootstrap(right, other);
}

}  // namespace

QuestionScore score_choices(const Asked& asked, const std::string& path, const TellScore& tell) {
  const std::vector<std::string> lines = lines_of(path);
  std::vector<Choices> questions;
  std::vector<Sequence> sequences;
  std::vector<double> chance, shortest, longest;
  for (size_t i = 0; i < asked.limited(lines.size()); ++i) {
    questions.push_back(read_choices(asked, lines[i], place(path, i)));
    const Choices& q = questions.back();
    sequences.insert(sequences.end(), q.sequences.begin(), q.sequences.end());
    const auto [least, most] = std::minmax_element(q.lengths.begin(), q.lengths.end());
    chance.push_back(1 / double(q.lengths.size()));
    shortest.push_back(double(size_t(least - q.lengths.begin()) == q.answer));
    longest.push_back(double(size_t(most - q.lengths.begin()) == q.answer));
  }
  const std::vector<SequenceScores> scores = asked.scores(sequences, path, tell);
  QuestionScore result;
  std::vector<double> right, normalised, other;
  size_t next = 0;
  for (const Choices& q : questions) {
    std::vector<double> own, second;
    for (size_t c = 0; c < q.sequences.size(); ++c, ++next) {
      own.push_back(scores[next].model.sum());
      second.push_back(scores[next].against.sum());
    }
    result.nats.push_back(own);
    const auto [plain, per_character] = chooses_right(q, own);
    right.push_back(double(plain));
    normalised.push_back(double(per_character));
    if (asked.against != nullptr) other.push_back(double(chooses_right(q, second).first));
  }
  result.kind = "choices";
  result.file = path;
  result.questions = int64_t(questions.size());
  result.right = share_of(right);
  result.normalised = share_of(normalised);
  result.chance = mean(chance);
  result.shortest = mean(shortest);
  result.longest = mean(longest);
  compare(result, right, other);
  return result;
}

QuestionScore score_pairs(const Asked& asked, const std::string& path, const TellScore& tell) {
  const std::vector<std::string> lines = lines_of(path), head = cells_of(lines[0]);
  const auto column = [&](const char* name) {
    return size_t(std::find(head.begin(), head.end(), name) - head.begin());
  };
  const size_t good = column("sentence_good"), bad = column("sentence_bad");
  const size_t term = column("linguistics_term");
  if (good == head.size() || bad == head.size())
    throw DataError("{}: has no columns sentence_good and sentence_bad", place(path, 0));
  const size_t count = asked.limited(lines.size() - 1);
  std::vector<Sequence> sequences;
  std::vector<std::string> terms;
  for (size_t i = 1; i <= count; ++i) {
    const std::vector<std::string> cells = cells_of(lines[i]);
    if (cells.size() != head.size())
      throw DataError("{}: has {} cells, the head {}", place(path, i), cells.size(), head.size());
    sequences.push_back(answer_after(asked, "", " " + cells[good]));
    sequences.push_back(answer_after(asked, "", " " + cells[bad]));
    terms.push_back(term < head.size() ? cells[term] : "");
  }
  const std::vector<SequenceScores> scores = asked.scores(sequences, path, tell);
  QuestionScore result;
  std::vector<double> right, other;
  std::map<std::string, std::vector<double>> by_term;
  for (size_t i = 0; i < count; ++i) {
    const SequenceScores &a = scores[2 * i], &b = scores[2 * i + 1];
    result.nats.push_back({a.model.sum(), b.model.sum()});
    const bool equal = sequences[2 * i].tokens == sequences[2 * i + 1].tokens;  // counts as right
    right.push_back(double(equal || a.model.sum() <= b.model.sum()));
    if (asked.against != nullptr)
      other.push_back(double(equal || a.against.sum() <= b.against.sum()));
    by_term[terms[i]].push_back(right.back());
  }
  result.kind = "pairs";
  result.file = path;
  result.questions = int64_t(count);
  result.right = share_of(right);
  result.chance = 0.5;
  if (term < head.size()) {
    for (const auto& [name, list] : by_term) result.by_term.emplace_back(name, share_of(list));
  }
  compare(result, right, other);
  return result;
}

QuestionScore score_last_word(const Asked& asked, const std::string& path, const TellScore& tell) {
  const std::vector<std::string> lines = lines_of(path);
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < asked.limited(lines.size()); ++i) {
    const std::string where = place(path, i);
    const std::string text = text_in(parse_json(lines[i], where), "text", where);
    const size_t space = text.rfind(' ');
    if (space == std::string::npos) throw DataError("{}: has one word only", where);
    sequences.push_back(answer_after(asked, text.substr(0, space), text.substr(space)));
  }
  const std::vector<SequenceScores> scores = asked.scores(sequences, path, tell);
  QuestionScore result;
  std::vector<double> right, other, nats;
  for (const SequenceScores& s : scores) {
    right.push_back(double(s.model.all_top()));
    nats.push_back(s.model.sum());
    result.nats.push_back({nats.back()});
    if (asked.against != nullptr) other.push_back(double(s.against.all_top()));
  }
  result.kind = "last word";
  result.file = path;
  result.questions = int64_t(sequences.size());
  result.right = share_of(right);
  result.perplexity = std::exp(mean(nats));
  compare(result, right, other);
  return result;
}

}  // namespace horner
