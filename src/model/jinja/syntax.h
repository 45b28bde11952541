// A template as a tree: what the parser makes, and what the interpreter walks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/jinja/value.h"

namespace horner::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Argument {
  std::string name;  // empty: by position
  ExpressionPtr value;
};

enum class Expr {
  literal,      // value
  name,         // text
  attribute,    // parts[0].text
  item,         // parts[0][parts[1]]
  slice,        // parts[0][parts[1]:parts[2]:parts[3]]; a missing one is null
  call,         // parts[0](arguments)
  filter,       // parts[0] | text(arguments)
  test,         // parts[0] is text(arguments)
  negation,     // not parts[0]
  sign,         // -parts[0] or +parts[0], text
  binary,       // parts[0] text parts[1]: + - * / // % ** ~
  logic,        // parts[0] and/or parts[1]
  comparison,   // parts[0] texts[0] parts[1] texts[1] parts[2] ..
  conditional,  // parts[0] if parts[1] else parts[2]; the last may be null
  list,         // parts
  dict,         // parts: key, value, key, value ..
};

struct Expression {
  Expr kind = Expr::literal;
  int line = 0;
  std::string text;
  std::vector<std::string> texts;
  Value value;
  std::vector<ExpressionPtr> parts;
  std::vector<Argument> arguments;
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Macro {
  std::string name;
  std::vector<Argument> parameters;  // with their defaults, which may be null
  Block body;
};

enum class Stmt {
  text,     // text
  output,   // expression
  branch,   // if expression body else other
  loop,     // for targets in expression if condition body else other
  assign,   // set targets = expression, or set targets[0].text = expression
  capture,  // set targets[0] = the text of body
  block,    // body alone: {% generation %}
  macro,    // macro
  stop,     // break
  next,     // continue
};

struct Statement {
  Stmt kind = Stmt::text;
  int line = 0;
  std::string text;
  std::vector<std::string> targets;
  ExpressionPtr expression, condition;
  Block body, other;
  std::unique_ptr<Macro> macro;
};

// Mistake with its line ("line 3: ...") if it is no template of the kind that README's model page describes.
Block parse(std::string_view source);

}  // namespace horner::jinja
