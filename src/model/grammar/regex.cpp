#include "model/grammar/regex.h"

#include <charconv>
#include <optional>

#include "io/tokenizer/unicode.h"

namespace horner::grammar {
namespace {

struct Node {
  enum Kind { set, sequence, choice, repeat } kind = sequence;
  Characters characters;
  std::vector<Node> parts;
  int32_t least = 0, most = -1;  // of repeat; -1: any number
};

const Characters kDigit({{'0', '9'}}), kSpace({{'\t', '\r'}, {' ', ' '}}),
    kWord({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}),
    kLineEnd({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
constexpr int32_t kMostCount = 100'000;

Node set_node(Characters characters) {
  Node node;
  node.kind = Node::set;
  node.characters = std::move(characters);
  return node;
}
Node any_number_of(Node node) {
  Node made;
  made.kind = Node::repeat;
  made.parts.push_back(std::move(node));
  return made;
}

class Parser {
 public:
  Parser(std::string_view text, Search search) : text_(text), search_(search) {
    if (utf8_prefix(text) < text.size()) {
      at_ = utf8_prefix(text);
      refuse("is not UTF-8");
    }
  }

  Node run() {
    Node all = alternatives(0);
    if (at_ < text_.size()) refuse("')' has no '('");
    return all;
  }

 private:
  // Places count characters, from 1.
  [[noreturn]] void refuse(std::string_view what) const { refuse_at(at_, what); }
  [[noreturn]] void refuse_at(size_t place, std::string_view what) const {
    size_t characters = 1;
    for (const char c : text_.substr(0, place)) characters += (uint8_t(c) & 0xc0) != 0x80;
    throw UsageError("character {}: {}", characters, what);
  }
  bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!next_is(what)) return false;
    at_ += what.size();
    return true;
  }
  int32_t take_character() {
    const CodePoint c = code_point(text_.substr(at_));
    at_ += c.size;
    return c.value;
  }

  Node alternatives(int32_t depth) {
    if (depth > kMostNesting) refuse("groups are nested too deep");
    Node node;
    node.kind = Node::choice;
    do {
      node.parts.push_back(depth == 0 ? top_alternative() : alternative(depth));
    } while (take("|"));
    return node;
  }

  Node top_alternative() {
    const bool starts = take("^");
    Node node = alternative(0);
    const bool ends = take("$");
    if (search_ == Search::whole) return node;
    const Node anything = any_number_of(set_node(Characters::all()));
    if (!starts) node.parts.insert(node.parts.begin(), anything);
    if (!ends) node.parts.push_back(anything);
    return node;
  }

  Node alternative(int32_t depth) {
    Node node;
    while (at_ < text_.size() && !next_is("|") && !next_is(")")) {
      const bool last = at_ + 1 == text_.size() || text_[at_ + 1] == '|';
      if (next_is("$") && depth == 0 && last) break;
      node.parts.push_back(repeated(depth));
    }
    return node;
  }

  Node repeated(int32_t depth) {
    Node node = atom(depth);
    const std::optional<std::pair<int32_t, int32_t>> count = quantifier();
    if (!count) return node;
    take("?");  // lazy: the same texts
    if (next_is("+")) refuse("possessive repetition is not supported");
    if (next_is("*") || next_is("?") || next_is("{"))
      refuse("a repetition is repeated; use a group");
    Node made = any_number_of(std::move(node));
    made.least = count->first;
    made.most = count->second;
    return made;
  }

  std::optional<std::pair<int32_t, int32_t>> quantifier() {
    if (take("*")) return {{0, -1}};
    if (take("+")) return {{1, -1}};
    if (take("?")) return {{0, 1}};
    if (!next_is("{")) return {};
    const size_t place = at_++;
    const int32_t least = count(place);
    int32_t most = least;
    if (take(",")) most = next_is("}") ? -1 : count(place);
    if (!take("}")) refuse_at(place, "'{' begins no count such as {2,5}; write \\{");
    if (most >= 0 && most < least) refuse_at(place, "the count ends before it begins");
    return {{least, most}};
  }

  int32_t count(size_t place) {
    int32_t value = 0;
    const auto read = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (read.ptr == text_.data() + at_ || text_[at_] == '-')
      refuse_at(place, "'{' begins no count such as {2,5}; write \\{");
    if (read.ec != std::errc() || value > kMostCount)
      refuse_at(place, fmt::format("a count is more than {}", kMostCount));
    at_ = size_t(read.ptr - text_.data());
    return value;
  }

  Node atom(int32_t depth) {
    const char c = text_[at_];
    switch (c) {
      case '(': return group(depth);
      case '[': return set_node(bracket());
      case '.': ++at_; return set_node(Characters::all().without(kLineEnd));
      case '\\': return set_node(escape(false));
      case '*':
      case '+':
      case '?':
      case '{': refuse(fmt::format("there is nothing for '{}' to repeat", c));
      case '^': refuse("'^' is supported only at the beginning");
      case '$': refuse("'$' is supported only at the end");
      default: break;
    }
    const int32_t value = take_character();
    return set_node(Characters({{value, value}}));
  }

  Node group(int32_t depth) {
    const size_t place = at_++;
    if (take("?")) {
      const bool named = (next_is("P<") || next_is("<")) && !next_is("<=") && !next_is("<!");
      if (named) {
        at_ = text_.find('>', at_);
        if (at_ == text_.npos) refuse_at(place, "a group's name has no end");
        ++at_;
      } else if (!take(":")) {
        const bool looks = next_is("=") || next_is("!") || next_is("<");
        refuse_at(
            place,
            fmt::format("{} is not supported", looks ? "looking around" : "a group with flags")
        );
      }
    }
    Node node = alternatives(depth + 1);
    if (!take(")")) refuse_at(place, "'(' has no ')'");
    return node;
  }

  // [..]: ranges, escapes and single characters. A ']' must be escaped.
  Characters bracket() {
    const size_t place = at_++;
    const bool negated = take("^");
    if (next_is("]")) refuse("an empty class; write \\] for the sign");
    Characters set;
    while (!take("]")) {
      if (at_ >= text_.size()) refuse_at(place, "'[' has no ']'");
      if (next_is("[:") || next_is("[.") || next_is("[="))
        refuse("named classes are not supported");
      if (next_is("&&") || next_is("--") || next_is("~~") || next_is("||"))
        refuse("operations on classes are not supported");
      const size_t begin = at_;
      const Characters first = class_part();
      const bool range = next_is("-") && !next_is("-]") && at_ + 1 < text_.size();
      if (!range) {
        set = set.with(first);
        continue;
      }
      ++at_;
      const Characters last = class_part();
      const auto one = [&](const Characters& part) {
        if (part.ranges().size() != 1 || part.ranges()[0].first != part.ranges()[0].last)
          refuse_at(begin, "a range of a class needs two characters");
        return part.ranges()[0].first;
      };
      if (one(first) > one(last)) refuse_at(begin, "a range of a class ends before it begins");
      set = set.with(Characters({{one(first), one(last)}}));
    }
    return negated ? Characters::all().without(set) : set;
  }

  Characters class_part() {
    if (at_ >= text_.size()) refuse("a class has no ']'");
    if (next_is("\\")) return escape(true);
    const int32_t value = take_character();
    return Characters({{value, value}});
  }

  Characters escape(bool in_class) {
    const size_t place = at_++;
    if (at_ >= text_.size()) refuse_at(place, "'\\' stands at the end");
    const char letter = text_[at_];
    const auto one = [](int32_t c) { return Characters({{c, c}}); };
    if (uint8_t(letter) >= 0x80) return one(take_character());
    ++at_;
    switch (letter) {
      case 'd': return kDigit;
      case 'D': return Characters::all().without(kDigit);
      case 'w': return kWord;
      case 'W': return Characters::all().without(kWord);
      case 's': return kSpace;
      case 'S': return Characters::all().without(kSpace);
      case 'n': return one('\n');
      case 'r': return one('\r');
      case 't': return one('\t');
      case 'f': return one('\f');
      case 'v': return one('\v');
      case 'x': return one(hex(place, 2));
      case 'u': return one(hex(place, 4));
      case '0':
        if (at_ == text_.size() || text_[at_] < '0' || text_[at_] > '9') return one(0);
        refuse_at(place, "octal numbers are not supported; write \\x00");
      case 'b':
        if (in_class) return one('\b');
        refuse_at(place, "\\b (the edge of a word) is not supported");
      default: break;
    }
    if (letter >= '1' && letter <= '9') refuse_at(place, "back references are not supported");
    const bool is_letter = (letter | 32) >= 'a' && (letter | 32) <= 'z';
    if (is_letter) refuse_at(place, fmt::format("\\{} is not supported", letter));
    return one(letter);
  }

  int32_t hex(size_t place, size_t digits) {
    int32_t value = 0;
    const char* const begin = text_.data() + at_;
    const size_t size = std::min(digits, text_.size() - at_);
    const auto read = std::from_chars(begin, begin + size, value, 16);
    if (read.ptr != begin + digits || *begin == '-')
      refuse_at(place, fmt::format("\\{} needs {} digits", digits == 2 ? 'x' : 'u', digits));
    at_ += digits;
    if (value >= 0xd800 && value <= 0xdfff) refuse_at(place, "surrogates are not supported");
    return value;
  }

  std::string_view text_;
  Search search_;
  size_t at_ = 0;
};

class Builder {
 public:
  Builder(Nfa& nfa, Coding coding) : nfa_(nfa), coding_(coding) {}

  void add(int32_t from, const Node& node, int32_t to) {
    nfa_.budget().add_work();
    switch (node.kind) {
      case Node::set:
        return coding_ == Coding::plain ? nfa_.character(from, node.characters, to)
                                        : nfa_.json_character(from, node.characters, to);
      case Node::sequence:
        for (const Node& part : node.parts) {
          const int32_t next = nfa_.add();
          add(from, part, next);
          from = next;
        }
        return nfa_.jump(from, to);
      case Node::choice:
        for (const Node& part : node.parts) {
          const int32_t begin = nfa_.add();
          nfa_.jump(from, begin);
          add(begin, part, to);
        }
        return;
      case Node::repeat: return repeat(from, node, to);
    }
  }

 private:
  void repeat(int32_t from, const Node& node, int32_t to) {
    const auto once = [&](int32_t state) {
      const int32_t next = nfa_.add();
      add(state, node.parts[0], next);
      return next;
    };
    for (int32_t i = 0; i < node.least; ++i) from = once(from);
    if (node.most < 0) {
      const int32_t again = nfa_.add();
      nfa_.jump(from, again);
      nfa_.jump(once(again), again);
      from = again;
    }
    for (int32_t i = node.least; i < node.most; ++i) {
      nfa_.jump(from, to);
      from = once(from);
    }
    nfa_.jump(from, to);
  }

  Nfa& nfa_;
  Coding coding_;
};

}  // namespace

void add_regex(
    Nfa& nfa, int32_t from, std::string_view pattern, Coding coding, Search search, int32_t to
) {
  Builder(nfa, coding).add(from, Parser(pattern, search).run(), to);
}

}  // namespace horner::grammar
