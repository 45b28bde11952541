#include "model/jinja/lexer.h"

#include <algorithm>
#include <cctype>

#include "model/jinja/value.h"

namespace horner::jinja {
namespace {

constexpr std::string_view kSpaces = " \t\n\r\v\f";

void append_code_point(std::string& text, uint32_t c) {
  if (c < 0x80) {
    text += char(c);
  } else if (c < 0x800) {
    text += {char(0xc0 | c >> 6), char(0x80 | (c & 0x3f))};
  } else if (c < 0x10000) {
    text += {char(0xe0 | c >> 12), char(0x80 | (c >> 6 & 0x3f)), char(0x80 | (c & 0x3f))};
  } else {
    text +=
        {char(0xf0 | c >> 18),
         char(0x80 | (c >> 12 & 0x3f)),
         char(0x80 | (c >> 6 & 0x3f)),
         char(0x80 | (c & 0x3f))};
  }
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    source_.reserve(source.size());
    for (size_t i = 0; i < source.size(); ++i) {  // \r\n and \r are new lines
      if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
      source_ += source[i] == '\r' ? '\n' : source[i];
    }
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag();
      add_text(tag);
      if (tag == source_.npos) break;
      at_ = tag;
      switch (source_[tag + 1]) {
        case '{': read_tag(Token::open_output, Token::close_output, "}}"); break;
        case '%': read_tag(Token::open_block, Token::close_block, "%}"); break;
        default: skip_comment();
      }
    }
    add(Token::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Mistake("line {}: {}", line_, what);
  }
  void add(Token::Kind kind, std::string value) {
    tokens_.push_back({kind, std::move(value), line_});
  }
  void advance(size_t to) {
    line_ += int(std::count(source_.begin() + int64_t(at_), source_.begin() + int64_t(to), '\n'));
    at_ = to;
  }

  size_t find_tag() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' &&
          std::string_view("{%#").find(source_[i + 1]) != std::string_view::npos)
        return i;
    }
    return source_.npos;
  }

  // The text from here to the tag, without the white space that the tag drops.
  void add_text(size_t tag) {
    std::string text = source_.substr(at_, tag == source_.npos ? tag : tag - at_);
    if (tag != source_.npos) {
      const char mark = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
      if (mark == '-') {
        text.erase(text.find_last_not_of(kSpaces) + 1);
      } else if (source_[tag + 1] != '{' && mark != '+') {
        const size_t line = text.rfind('\n') + 1;  // 0 if there is none
        if ((line > 0 || line_starts_) && text.find_first_not_of(kSpaces, line) == text.npos)
          text.erase(line);
      }
    }
    if (!text.empty()) add(Token::text, text);
    advance(tag == source_.npos ? source_.size() : tag);
  }

  // After the end of a tag at `at_`: drops what `mark` says, and the first new line of a block.
  void leave_tag(char mark, bool block) {
    size_t to = at_;
    if (mark == '-') {
      to = std::min(source_.find_first_not_of(kSpaces, to), source_.size());
    } else if (block && mark != '+' && to < source_.size() && source_[to] == '\n') {
      ++to;
    }
    line_starts_ = to > at_ && source_[to - 1] == '\n';
    advance(to);
  }

  void skip_comment() {
    const size_t close = source_.find("#}", at_ + 2);
    if (close == source_.npos) fail("a comment has no end");
    const char mark = close > at_ + 2 ? source_[close - 1] : ' ';
    advance(close + 2);
    leave_tag(mark, true);
  }

  void read_tag(Token::Kind open, Token::Kind close_kind, std::string_view close) {
    add(open, "");
    at_ += 2;
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
    int brackets = 0;  // "}}" may end a dict inside of an expression
    for (;;) {
      advance(std::min(source_.find_first_not_of(kSpaces, at_), source_.size()));
      if (at_ == source_.size()) fail(fmt::format("a tag has no end: {} is missing", close));
      const std::string_view rest = std::string_view(source_).substr(at_);
      const char mark = rest[0] == '-' || rest[0] == '+' ? rest[0] : ' ';
      if (brackets == 0 && rest.substr(mark == ' ' ? 0 : 1).starts_with(close)) {
        add(close_kind, "");
        advance(at_ + (mark == ' ' ? 0 : 1) + 2);
        return leave_tag(mark, close_kind == Token::close_block);
      }
      if (std::string_view("([{").find(rest[0]) != std::string_view::npos) ++brackets;
      if (std::string_view(")]}").find(rest[0]) != std::string_view::npos && brackets-- == 0)
        fail(fmt::format("'{}' closes nothing", rest[0]));
      read_word(rest);
    }
  }

  void read_word(std::string_view rest) {
    const auto is_name = [](char c) { return std::isalnum(uint8_t(c)) || c == '_'; };
    if (rest[0] == '"' || rest[0] == '\'') return read_string();
    if (std::isdigit(uint8_t(rest[0]))) return read_number(rest);
    if (is_name(rest[0])) {
      const size_t size =
          size_t(std::find_if_not(rest.begin(), rest.end(), is_name) - rest.begin());
      add(Token::name, std::string(rest.substr(0, size)));
      return advance(at_ + size);
    }
    for (const std::string_view sign : {"**", "//", "==", "!=", "<=", ">="}) {
      if (!rest.starts_with(sign)) continue;
      add(Token::sign, std::string(sign));
      return advance(at_ + 2);
    }
    if (std::string_view("+-*/%~<>=()[]{},.:|").find(rest[0]) == std::string_view::npos)
      fail(fmt::format("unknown sign '{}'", rest.substr(0, code_point_size(rest))));
    add(Token::sign, std::string(rest.substr(0, 1)));
    advance(at_ + 1);
  }

  void read_number(std::string_view rest) {
    size_t size = std::min(rest.find_first_not_of("0123456789_"), rest.size());
    bool real = false;
    if (size + 1 < rest.size() && rest[size] == '.' && std::isdigit(uint8_t(rest[size + 1]))) {
      real = true;
      size = std::min(rest.find_first_not_of("0123456789_", size + 1), rest.size());
    }
    if (size < rest.size() && (rest[size] == 'e' || rest[size] == 'E'))
      fail("numbers with an exponent are not known");
    std::string digits(rest.substr(0, size));
    std::erase(digits, '_');
    if (digits.size() > 18) fail("a number is too long");
    add(real ? Token::real : Token::integer, digits);
    advance(at_ + size);
  }

  void read_string() {
    const char quote = source_[at_];
    std::string value;
    for (size_t i = at_ + 1; i < source_.size(); ++i) {
      if (source_[i] == quote) {
        add(Token::string, std::move(value));
        return advance(i + 1);
      }
      if (source_[i] != '\\' || i + 1 == source_.size()) {
        value += source_[i];
        continue;
      }
      i += read_escape(std::string_view(source_).substr(i + 1), value);
    }
    fail("a string has no end");
  }

  // Python's escapes; returns how many bytes after the backslash it took.
  size_t read_escape(std::string_view rest, std::string& value) const {
    static constexpr std::string_view kLetters = "ntr\\'\"bfav0\n",
                                      kMeanings = "\n\t\r\\'\"\b\f\a\v";
    const size_t at = kLetters.find(rest[0]);
    if (at < kMeanings.size()) {
      value += kMeanings[at];
      return 1;
    }
    if (rest[0] == '\n') return 1;
    const size_t digits = rest[0] == 'x' ? 2 : rest[0] == 'u' ? 4 : rest[0] == 'U' ? 8 : 0;
    if (digits == 0) {
      value += '\\';
      return 0;
    }
    const std::string hex(rest.substr(1, digits));
    if (hex.size() < digits || hex.find_first_not_of("0123456789abcdefABCDEF") != hex.npos)
      fail(fmt::format("\\{} needs {} hexadecimal digits", rest[0], digits));
    const unsigned long code = std::stoul(hex, nullptr, 16);
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) fail("there is no such character");
    append_code_point(value, uint32_t(code));
    return 1 + digits;
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace horner::jinja
