#include <algorithm>
#include <set>

#include "model/jinja/lexer.h"
#include "model/jinja/syntax.h"

namespace horner::jinja {
namespace {

constexpr int kDepth = 100;  // of nested expressions and blocks

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Block run() {
    Block all = block({});
    if (now().kind != Token::end) fail("'{}' ends nothing", tokens_[at_ + 1].value);
    return all;
  }

 private:
  using Words = std::set<std::string, std::less<>>;

  struct Deeper {
    explicit Deeper(Parser& parser) : parser_(parser) {
      if (++parser.depth_ > kDepth) parser.fail("it is nested more than {} deep", kDepth);
    }
    ~Deeper() { --parser_.depth_; }
    Parser& parser_;
  };

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Mistake("line {}: {}", now().line, fmt::format(format, std::forward<Args>(args)...));
  }

  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is(Token::Kind kind, std::string_view value) const {
    return now().kind == kind && now().value == value;
  }
  bool take(Token::Kind kind, std::string_view value) {
    if (!is(kind, value)) return false;
    ++at_;
    return true;
  }
  bool sign(std::string_view value) { return take(Token::sign, value); }
  bool word(std::string_view value) { return take(Token::name, value); }
  std::string shown() const {
    switch (now().kind) {
      case Token::end: return "the end of the template";
      case Token::close_block: return "%}";
      case Token::close_output: return "}}";
      default: return now().value;
    }
  }
  void expect(std::string_view value) {
    if (!sign(value)) fail("'{}' is expected, not '{}'", value, shown());
  }
  void close(Token::Kind kind) {
    if (now().kind != kind) fail("'{}' is not understood here", shown());
    ++at_;
  }
  std::string name() {
    if (now().kind != Token::name) fail("a name is expected, not '{}'", shown());
    return tokens_[at_++].value;
  }
  ExpressionPtr make(Expr kind, std::string text = "") const {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = now().line;
    made->text = std::move(text);
    return made;
  }
  static ExpressionPtr with(ExpressionPtr made, ExpressionPtr a, ExpressionPtr b = nullptr) {
    made->parts.push_back(std::move(a));
    if (b) made->parts.push_back(std::move(b));
    return made;
  }

  // Statements up to a tag that begins with one of `ends`, which is left unread; or to the end of the template.
  Block block(const Words& ends) {
    const Deeper deeper(*this);
    Block all;
    for (;;) {
      auto made = std::make_unique<Statement>();
      made->line = now().line;
      switch (now().kind) {
        case Token::end:
          if (!ends.empty()) fail("{{% {} %}} is missing", *ends.rbegin());
          return all;
        case Token::text: made->text = tokens_[at_++].value; break;
        case Token::open_output:
          ++at_;
          made->kind = Stmt::output;
          made->expression = tuple();
          close(Token::close_output);
          break;
        default:
          if (ends.contains(after().value) ||
              (ends.empty() &&
               Words{"endif", "endfor", "else", "elif", "endset", "endmacro", "endgeneration"}
                   .contains(after().value)))
            return all;
          ++at_;
          statement(*made);
      }
      all.push_back(std::move(made));
    }
  }

  void end_tag(std::string_view word_of_end) {
    ++at_;  // {%
    if (!word(word_of_end)) fail("{{% {} %}} is expected, not '{}'", word_of_end, shown());
    close(Token::close_block);
  }

  void statement(Statement& made) {
    const std::string tag = name();
    if (tag == "if") return branch(made);
    if (tag == "for") return loop(made);
    if (tag == "set") return assign(made);
    if (tag == "macro") return macro(made);
    if (tag == "generation") {
      made.kind = Stmt::block;
      close(Token::close_block);
      made.body = block({"endgeneration"});
      return end_tag("endgeneration");
    }
    if (tag != "break" && tag != "continue") fail("the statement '{}' is not known", tag);
    if (loops_ == 0) fail("'{}' stands outside of a loop", tag);
    made.kind = tag == "break" ? Stmt::stop : Stmt::next;
    close(Token::close_block);
  }

  void branch(Statement& made) {
    const Deeper deeper(*this);  // elif calls itself
    made.kind = Stmt::branch;
    made.expression = expression();
    close(Token::close_block);
    made.body = block({"elif", "else", "endif"});
    ++at_;
    const std::string tag = name();
    if (tag == "elif") {
      auto nested = std::make_unique<Statement>();
      nested->line = now().line;
      branch(*nested);
      made.other.push_back(std::move(nested));
      return;
    }
    close(Token::close_block);
    if (tag == "endif") return;
    made.other = block({"endif"});
    end_tag("endif");
  }

  std::vector<std::string> targets() {
    std::vector<std::string> names;
    const bool brackets = sign("(");
    do names.push_back(name());
    while (sign(","));
    if (brackets) expect(")");
    return names;
  }

  void loop(Statement& made) {
    made.kind = Stmt::loop;
    made.targets = targets();
    if (!word("in")) fail("'in' is expected, not '{}'", shown());
    made.expression = logic_or();  // a condition after it would be taken for a choice
    if (word("if")) made.condition = expression();
    if (is(Token::name, "recursive")) fail("recursive loops are not known");
    close(Token::close_block);
    ++loops_;
    made.body = block({"else", "endfor"});
    --loops_;
    if (after().value == "else") {
      end_tag("else");
      made.other = block({"endfor"});
    }
    end_tag("endfor");
  }

  void assign(Statement& made) {
    made.kind = Stmt::assign;
    if (now().kind == Token::name && after().kind == Token::sign && after().value == ".") {
      made.targets = {name()};
      expect(".");
      made.text = name();
    } else {
      made.targets = targets();
    }
    if (sign("=")) {
      made.expression = tuple();
      return close(Token::close_block);
    }
    if (now().kind != Token::close_block || made.targets.size() != 1 || !made.text.empty())
      fail("'=' is expected, not '{}'", shown());
    ++at_;
    made.kind = Stmt::capture;
    made.body = block({"endset"});
    end_tag("endset");
  }

  void macro(Statement& made) {
    made.kind = Stmt::macro;
    made.macro = std::make_unique<Macro>();
    made.macro->name = name();
    expect("(");
    while (!sign(")")) {
      Argument parameter{name(), nullptr};
      if (sign("=")) parameter.value = expression();
      made.macro->parameters.push_back(std::move(parameter));
      if (!is(Token::sign, ")")) expect(",");
    }
    close(Token::close_block);
    const int loops = std::exchange(loops_, 0);
    made.macro->body = block({"endmacro"});
    loops_ = loops;
    end_tag("endmacro");
  }

  // One expression, or several with commas, which are a list.
  ExpressionPtr tuple() {
    ExpressionPtr first = expression();
    if (!is(Token::sign, ",")) return first;
    ExpressionPtr made = with(make(Expr::list), std::move(first));
    while (sign(",")) {
      if (now().kind == Token::close_block || now().kind == Token::close_output) break;
      made->parts.push_back(expression());
    }
    return made;
  }

  ExpressionPtr expression() {
    const Deeper deeper(*this);
    ExpressionPtr value = logic_or();
    while (is(Token::name, "if")) {
      ExpressionPtr made = make(Expr::conditional);
      ++at_;
      made->parts.push_back(std::move(value));
      made->parts.push_back(logic_or());
      made->parts.push_back(word("else") ? expression() : nullptr);
      value = std::move(made);
    }
    return value;
  }

  // Operators of one level that group to the left. The tree grows to the left by one level for each.
  template <class Next>
  ExpressionPtr chain(Expr kind, Token::Kind of, const Words& operators, Next&& next) {
    ExpressionPtr left = next();
    int count = 0;
    while (now().kind == of && operators.contains(now().value)) {
      if (++count > kDepth) fail("an expression has more than {} operators in a row", kDepth);
      ExpressionPtr made = make(kind, now().value);
      ++at_;
      left = with(std::move(made), std::move(left), next());
    }
    return left;
  }

  ExpressionPtr logic_or() {
    return chain(Expr::logic, Token::name, {"or"}, [&] { return logic_and(); });
  }
  ExpressionPtr logic_and() {
    return chain(Expr::logic, Token::name, {"and"}, [&] { return logic_not(); });
  }
  ExpressionPtr logic_not() {
    const Deeper deeper(*this);
    if (!is(Token::name, "not")) return comparison();
    ExpressionPtr made = make(Expr::negation);
    ++at_;
    return with(std::move(made), logic_not());
  }

  ExpressionPtr comparison() {
    ExpressionPtr first = sum();
    ExpressionPtr made;
    for (;;) {
      std::string operation;
      if (now().kind == Token::sign &&
          Words{"==", "!=", "<", "<=", ">", ">="}.contains(now().value)) {
        operation = now().value;
      } else if (is(Token::name, "in")) {
        operation = "in";
      } else if (is(Token::name, "not") && after().value == "in") {
        operation = "not in";
        ++at_;
      }
      if (operation.empty()) return made ? std::move(made) : std::move(first);
      if (!made) made = with(make(Expr::comparison), std::move(first));
      ++at_;
      made->texts.push_back(operation);
      made->parts.push_back(sum());
    }
  }

  ExpressionPtr sum() {
    return chain(Expr::binary, Token::sign, {"+", "-"}, [&] { return joined(); });
  }
  ExpressionPtr joined() {
    return chain(Expr::binary, Token::sign, {"~"}, [&] { return product(); });
  }
  ExpressionPtr product() {
    return chain(Expr::binary, Token::sign, {"*", "/", "//", "%"}, [&] { return power(); });
  }
  ExpressionPtr power() {
    return chain(Expr::binary, Token::sign, {"**"}, [&] { return unary(true); });
  }

  ExpressionPtr unary(bool filters) {
    const Deeper deeper(*this);
    ExpressionPtr value;
    if (is(Token::sign, "-") || is(Token::sign, "+")) {
      value = make(Expr::sign, now().value);
      ++at_;
      value = with(std::move(value), unary(false));
    } else {
      value = primary();
    }
    return postfix(std::move(value), filters);
  }

  ExpressionPtr postfix(ExpressionPtr value, bool filters) {
    for (int count = 0;; ++count) {
      if (count > kDepth) fail("an expression has more than {} parts in a row", kDepth);
      if (is(Token::sign, ".")) {
        ++at_;
        ExpressionPtr made = make(Expr::attribute, name());
        value = with(std::move(made), std::move(value));
      } else if (is(Token::sign, "[")) {
        value = subscript(std::move(value));
      } else if (is(Token::sign, "(")) {
        ExpressionPtr made = make(Expr::call);
        made->arguments = arguments();
        value = with(std::move(made), std::move(value));
      } else if (filters && is(Token::sign, "|")) {
        ++at_;
        ExpressionPtr made = make(Expr::filter, name());
        if (is(Token::sign, "(")) made->arguments = arguments();
        value = with(std::move(made), std::move(value));
      } else if (filters && is(Token::name, "is")) {
        value = test(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr value) {
    expect("[");
    std::vector<ExpressionPtr> parts(4);
    size_t colons = 0;
    for (; !is(Token::sign, "]");) {
      if (sign(":")) {
        if (++colons > 2) fail("a slice has at most two colons");
      } else {
        if (parts[colons + 1]) fail("']' is expected, not '{}'", shown());
        parts[colons + 1] = expression();
      }
    }
    expect("]");
    ExpressionPtr made = make(colons > 0 ? Expr::slice : Expr::item);
    if (colons == 0 && !parts[1]) fail("an index is missing");
    parts[0] = std::move(value);
    if (colons == 0) parts.resize(2);
    made->parts = std::move(parts);
    return made;
  }

  ExpressionPtr test(ExpressionPtr value) {
    ++at_;
    const bool negated = word("not");
    ExpressionPtr made = make(Expr::test, name());
    if (is(Token::sign, "(")) {
      made->arguments = arguments();
    } else if (
        now().kind == Token::string || now().kind == Token::integer || now().kind == Token::real ||
        is(Token::sign, "[") ||
        (now().kind == Token::name && !Words{"else", "or", "and", "if", "is", "in", "not"}.contains(now().value))
    ) {
      made->arguments.push_back({"", unary(false)});
    }
    made = with(std::move(made), std::move(value));
    return negated ? with(make(Expr::negation), std::move(made)) : std::move(made);
  }

  std::vector<Argument> arguments() {
    std::vector<Argument> all;
    expect("(");
    while (!sign(")")) {
      Argument one;
      if (now().kind == Token::name && after().kind == Token::sign && after().value == "=") {
        one.name = name();
        expect("=");
      }
      one.value = expression();
      all.push_back(std::move(one));
      if (!is(Token::sign, ")")) expect(",");
    }
    return all;
  }

  ExpressionPtr literal(Value value) {
    ExpressionPtr made = make(Expr::literal);
    made->value = std::move(value);
    return made;
  }

  ExpressionPtr primary() {
    const Token token = now();
    switch (token.kind) {
      case Token::name:
        ++at_;
        if (token.value == "true" || token.value == "True") return literal(true);
        if (token.value == "false" || token.value == "False") return literal(false);
        if (token.value == "none" || token.value == "None") return literal(None{});
        return make(Expr::name, token.value);
      case Token::string: {
        std::string text;
        while (now().kind == Token::string) text += tokens_[at_++].value;
        return literal(Text(std::move(text)));
      }
      case Token::integer: ++at_; return literal(int64_t(std::stoll(token.value)));
      case Token::real: ++at_; return literal(std::stod(token.value));
      case Token::sign: break;
      default: fail("a value is expected, not '{}'", shown());
    }
    if (sign("(")) {
      if (sign(")")) return make(Expr::list);
      ExpressionPtr value = expression();
      if (is(Token::sign, ",")) {
        value = with(make(Expr::list), std::move(value));
        while (sign(",") && !is(Token::sign, ")")) value->parts.push_back(expression());
      }
      expect(")");
      return value;
    }
    if (is(Token::sign, "[")) return elements(Expr::list, "[", "]");
    if (is(Token::sign, "{")) return elements(Expr::dict, "{", "}");
    fail("a value is expected, not '{}'", token.value);
  }

  ExpressionPtr elements(Expr kind, std::string_view open, std::string_view close_sign) {
    ExpressionPtr made = make(kind);
    expect(open);
    while (!sign(close_sign)) {
      made->parts.push_back(expression());
      if (kind == Expr::dict) {
        expect(":");
        made->parts.push_back(expression());
      }
      if (!is(Token::sign, close_sign)) expect(",");
    }
    return made;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Block parse(std::string_view source) { return Parser(tokenize(source)).run(); }

}  // namespace horner::jinja
