#include "report/maths.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

#include "report/svg.h"

namespace horner {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kLetters = {
    {{"phi", "φ"},
     {"eta", "η"},
     {"sigma", "σ"},
     {"Sigma", "Σ"},
     {"Lambda", "Λ"},
     {"beta", "β"},
     {"gamma", "γ"},
     {"dt", "Δ"}}};
constexpr std::array<std::string_view, 8> kFunctions = {
    "diag", "sigmoid", "softplus", "softmax", "max", "mean", "exp", "log"};

bool alpha(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string tag(const char* name, const std::string& inside) {
  return fmt::format("<{}>{}</{}>", name, inside, name);
}

// One expression, read from left to right.
class Reader {
 public:
  explicit Reader(std::string text) : s_(std::move(text)) {}

  std::string row(char close = 0) {
    std::string text;
    while (i_ < s_.size() && s_[i_] != close) {
      if (s_[i_] == ' ') {
        ++i_;
      } else {
        text += scripted();
      }
    }
    ++i_;
    return text;
  }

 private:
  char peek(size_t ahead = 0) const { return i_ + ahead < s_.size() ? s_[i_ + ahead] : 0; }

  std::string scripted() {
    std::string base = atom(), below, above;
    while (peek() == '_' || peek() == '^') {
      const char kind = s_[i_++];
      (kind == '_' ? below : above) = script();
    }
    if (!below.empty() && !above.empty()) return tag("msubsup", base + below + above);
    if (!below.empty()) return tag("msub", base + below);
    return above.empty() ? base : tag("msup", base + above);
  }

  // {..}, a number, or letters, each of them a name: x_ts has two indices.
  std::string script() {
    if (peek() == '{') {
      ++i_;
      return tag("mrow", row('}'));
    }
    if (digit(peek())) return number();
    std::string letters;
    while (alpha(peek())) {
      const char c = s_[i_++];
      letters += c == 'T' ? "<mo>⊤</mo>" : tag("mi", std::string(1, c));
    }
    return tag("mrow", letters);
  }

  std::string number() {
    std::string text;
    while (digit(peek()) || (peek() == '.' && digit(peek(1)))) text += s_[i_++];
    return tag("mn", text);
  }

  std::string atom() {
    if (digit(peek())) return number();
    if (alpha(peek())) return word();
    const char c = s_[i_++];
    if (c == '(') return tag("mrow", "<mo>(</mo>" + row(')') + "<mo>)</mo>");
    if (c == '.') return "<mo>·</mo>";
    if (c == '*') return "<mo>⊙</mo>";
    if (c == '-') return "<mo>−</mo>";
    return tag("mo", escape(std::string(1, c)));
  }

  std::string word() {
    std::string name;
    while (alpha(peek())) name += s_[i_++];
    if (name == "sum") return "<mo>∑</mo>";
    if (name == "sqrt") {
      while (peek() == ' ') ++i_;
      return tag("msqrt", i_ < s_.size() ? scripted() : "");
    }
    for (const auto& [ascii, letter] : kLetters) {
      if (name == ascii) return tag("mi", std::string(letter));
    }
    for (const std::string_view function : kFunctions) {
      if (name == function) return tag("mi", name);
    }
    if (name.size() == 1 && digit(peek())) return tag("msub", tag("mi", name) + number());  // W1
    if (name.size() == 1 || peek() == '_' || peek() == '^') return tag("mi", name);
    return tag("mtext", "&nbsp;" + name + "&nbsp;");
  }

  std::string s_;
  size_t i_ = 0;
};

// Parts between a separator that stands outside of all brackets.
std::vector<std::string> parts(const std::string& text, const std::string& separator) {
  std::vector<std::string> list = {""};
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '(' || text[i] == '{' ? 1 : text[i] == ')' || text[i] == '}' ? -1 : 0;
    if (depth == 0 && text.compare(i, separator.size(), separator) == 0) {
      list.emplace_back();
      i += separator.size() - 1;
    } else {
      list.back() += text[i];
    }
  }
  return list;
}

std::string side(const std::string& text) {
  const std::vector<std::string> fraction = parts(text, " / ");
  if (fraction.size() != 2) return Reader(text).row();
  return tag(
      "mfrac", tag("mrow", Reader(fraction[0]).row()) + tag("mrow", Reader(fraction[1]).row())
  );
}

}  // namespace

std::string maths(const std::string& equation) {
  std::string lines;
  for (const std::string& line : parts(equation, ", ")) {
    std::string text;
    for (const std::string& piece : parts(line, " = "))
      text += (text.empty() ? "" : "<mo>=</mo>") + side(piece);
    lines += fmt::format(
        R"(<math display="block" alttext="{}"><mrow>{}</mrow></math>)", escape(line), text
    );
  }
  return "<div class=\"maths\">" + lines + "</div>\n";
}

}  // namespace horner
