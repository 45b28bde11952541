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

struct Letter {
  std::string_view ascii, unicode, tex;
};
constexpr std::array<Letter, 9> kLetters = {
    {{"phi", "φ", "\\phi"},
     {"eta", "η", "\\eta"},
     {"sigma", "σ", "\\sigma"},
     {"Sigma", "Σ", "\\Sigma"},
     {"Gamma", "Γ", "\\Gamma"},
     {"Lambda", "Λ", "\\Lambda"},
     {"beta", "β", "\\beta"},
     {"gamma", "γ", "\\gamma"},
     {"dt", "Δ", "\\Delta"}}};
constexpr std::array<std::string_view, 12> kFunctions = {
    "diag",
    "sigmoid",
    "softplus",
    "softmax",
    "silu",
    "rms",
    "layer",
    "max",
    "min",
    "mean",
    "exp",
    "log"};

bool alpha(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string tag(const char* name, const std::string& inside) {
  return fmt::format("<{}>{}</{}>", name, inside, name);
}

// How the pieces of an expression are written.
struct Notation {
  virtual ~Notation() = default;
  virtual std::string number(const std::string& text) const = 0;
  virtual std::string letter(const std::string& text) const = 0;
  virtual std::string greek(const Letter& letter) const = 0;
  virtual std::string function(const std::string& name) const = 0;
  virtual std::string words(const std::string& text) const = 0;
  virtual std::string sign(char c) const = 0;
  virtual std::string at_most() const = 0;  // <=
  virtual std::string sum() const = 0;
  virtual std::string transposed() const = 0;
  virtual std::string root(const std::string& x) const = 0;
  virtual std::string group(const std::string& x) const = 0;
  virtual std::string scripts(
      const std::string& base, const std::string& below, const std::string& above
  ) const = 0;
  virtual std::string fraction(const std::string& above, const std::string& below) const = 0;
};

struct MathMl : Notation {
  std::string number(const std::string& text) const override { return tag("mn", text); }
  std::string letter(const std::string& text) const override { return tag("mi", text); }
  std::string greek(const Letter& l) const override { return tag("mi", std::string(l.unicode)); }
  std::string function(const std::string& name) const override { return tag("mi", name); }
  std::string words(const std::string& text) const override {
    return tag("mtext", "&nbsp;" + text + "&nbsp;");
  }
  std::string sign(char c) const override {
    if (c == '.') return "<mo>·</mo>";
    if (c == '*') return "<mo>⊙</mo>";
    if (c == '-') return "<mo>−</mo>";
    return tag("mo", escape(std::string(1, c)));
  }
  std::string at_most() const override { return "<mo>≤</mo>"; }
  std::string sum() const override { return "<mo>∑</mo>"; }
  std::string transposed() const override { return "<mo>⊤</mo>"; }
  std::string root(const std::string& x) const override { return tag("msqrt", x); }
  std::string group(const std::string& x) const override { return tag("mrow", x); }
  std::string scripts(const std::string& base, const std::string& below, const std::string& above)
      const override {
    // Without a font for mathematics a browser does not lower an index of a short letter.
    const std::string low = R"(<mpadded voffset="-.2em">)" + below + "</mpadded>";
    if (!below.empty() && !above.empty()) return tag("msubsup", base + low + above);
    return below.empty() ? tag("msup", base + above) : tag("msub", base + low);
  }
  std::string fraction(const std::string& above, const std::string& below) const override {
    return tag("mfrac", group(above) + group(below));
  }
};

struct Tex : Notation {
  std::string number(const std::string& text) const override { return text; }
  std::string letter(const std::string& text) const override {
    return text.size() == 1 ? text + " " : "\\mathit{" + text + "}";
  }
  std::string greek(const Letter& l) const override { return std::string(l.tex) + " "; }
  std::string function(const std::string& name) const override { return "\\mathrm{" + name + "}"; }
  std::string words(const std::string& text) const override { return "\\text{ " + text + " }"; }
  std::string sign(char c) const override {
    if (c == '.') return "\\cdot ";
    if (c == '*') return "\\odot ";
    if (c == '|') return "\\vert ";  // a bar would end the cell of a table
    if (c == '<') return "\\lt ";
    if (c == '&' || c == '%' || c == '#' || c == '$') return std::string("\\") + c;
    return std::string(1, c);
  }
  std::string at_most() const override { return "\\le "; }
  std::string sum() const override { return "\\sum"; }
  std::string transposed() const override { return "\\top "; }
  std::string root(const std::string& x) const override { return "\\sqrt{" + x + "}"; }
  std::string group(const std::string& x) const override { return x; }
  std::string scripts(const std::string& base, const std::string& below, const std::string& above)
      const override {
    std::string text = base.ends_with(' ') ? base.substr(0, base.size() - 1) : base;
    if (!below.empty()) text += "_{" + below + "}";
    if (!above.empty()) text += "^{" + above + "}";
    return text;
  }
  std::string fraction(const std::string& above, const std::string& below) const override {
    return "\\frac{" + above + "}{" + below + "}";
  }
};

// One expression, read from left to right.
class Reader {
 public:
  Reader(std::string text, const Notation& notation) : s_(std::move(text)), n_(notation) {}

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
    const std::string base = atom();
    std::string below, above;
    while (peek() == '_' || peek() == '^') {
      const char kind = s_[i_++];
      (kind == '_' ? below : above) = script();
    }
    return below.empty() && above.empty() ? base : n_.scripts(base, below, above);
  }

  // {..}, a number, or letters, each of them a name: x_ts has two indices.
  std::string script() {
    if (peek() == '{') {
      ++i_;
      return n_.group(row('}'));
    }
    if (digit(peek())) return number();
    std::string letters;
    while (alpha(peek())) {
      const char c = s_[i_++];
      letters += c == 'T' ? n_.transposed() : n_.letter(std::string(1, c));
    }
    return n_.group(letters);
  }

  std::string number() {
    std::string text;
    while (digit(peek()) || (peek() == '.' && digit(peek(1)))) text += s_[i_++];
    return n_.number(text);
  }

  std::string atom() {
    if (digit(peek())) return number();
    if (alpha(peek())) return word();
    const char c = s_[i_++];
    if (c == '(') return n_.group(n_.sign('(') + row(')') + n_.sign(')'));
    if (c == '<' && peek() == '=') {
      ++i_;
      return n_.at_most();
    }
    return n_.sign(c);
  }

  std::string word() {
    std::string name;
    while (alpha(peek())) name += s_[i_++];
    if (name == "sum") return n_.sum();
    if (name == "sqrt") {
      while (peek() == ' ') ++i_;
      return n_.root(i_ < s_.size() ? scripted() : "");
    }
    for (const Letter& letter : kLetters) {
      if (name == letter.ascii) return n_.greek(letter);
    }
    for (const std::string_view function : kFunctions) {
      if (name == function) return n_.function(name);
    }
    if (name.size() == 1 && digit(peek())) return n_.scripts(n_.letter(name), number(), "");  // W1
    if (name == "a" && peek() == ' ' && !prose(i_ + 1).empty()) return n_.words(name + phrase());
    if (name.size() == 1 || peek() == '_' || peek() == '^') return n_.letter(name);
    return n_.words(name + phrase());
  }

  // The words of prose that follow, each after a space.
  std::string phrase() {
    std::string text;
    while (peek() == ' ') {
      const std::string next = prose(i_ + 1);
      if (next.empty()) break;
      text += " " + next;
      i_ += 1 + next.size();
    }
    return text;
  }

  // The word of prose at `start`: several letters that name nothing. Empty: there is none.
  std::string prose(size_t start) const {
    size_t end = start;
    while (end < s_.size() && alpha(s_[end])) ++end;
    const std::string name = s_.substr(start, end - start);
    const bool scripted = end < s_.size() && (s_[end] == '_' || s_[end] == '^');
    if (name.size() < 2 || scripted || name == "sum" || name == "sqrt") return "";
    for (const Letter& letter : kLetters) {
      if (name == letter.ascii) return "";
    }
    for (const std::string_view function : kFunctions) {
      if (name == function) return "";
    }
    return name;
  }

  std::string s_;
  const Notation& n_;
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

std::string side(const std::string& text, const Notation& notation) {
  const std::vector<std::string> fraction = parts(text, " / ");
  if (fraction.size() != 2) return Reader(text, notation).row();
  return notation.fraction(
      Reader(fraction[0], notation).row(), Reader(fraction[1], notation).row()
  );
}

// Both sides of "=".
std::string equality(const std::string& line, const Notation& notation) {
  std::string text;
  for (const std::string& piece : parts(line, " = "))
    text += (text.empty() ? "" : notation.sign('=')) + side(piece, notation);
  return text;
}

}  // namespace

std::string maths(const std::string& equation) {
  std::string lines;
  for (const std::string& line : parts(equation, ", "))
    lines += fmt::format(
        R"(<math display="block" alttext="{}"><mrow>{}</mrow></math>)",
        escape(line),
        equality(line, MathMl())
    );
  return "<div class=\"maths\">" + lines + "</div>\n";
}

std::string tex(const std::string& equation) {
  std::string text;
  for (const std::string& line : parts(equation, ", "))
    text += (text.empty() ? "" : ",\\quad ") + equality(line, Tex());
  return text;
}

}  // namespace horner
