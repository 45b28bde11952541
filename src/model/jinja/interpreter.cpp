#include "model/jinja/interpreter.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace horner::jinja {
namespace {

using Scope = std::map<std::string, Value, std::less<>>;
enum class Flow { on, stop, next };  // after a statement: go on, break, continue

int64_t whole(const Value& value) {
  if (const int64_t* i = value.get<int64_t>()) return *i;
  if (const bool* b = value.get<bool>()) return *b ? 1 : 0;
  throw Mistake("a whole number is needed, not a value of type {}", type_name(value));
}

[[noreturn]] void not_defined(const Value& value) {
  const std::string& name = value.get<Undefined>()->name;
  throw Mistake("'{}' is undefined", name.empty() ? "a value" : name);
}

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

Value integer_binary(char kind, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (kind == '+') overflow = __builtin_add_overflow(a, b, &result);
  if (kind == '-') overflow = __builtin_sub_overflow(a, b, &result);
  if (kind == '*') overflow = __builtin_mul_overflow(a, b, &result);
  if (kind == 'd' || kind == '%') {
    if (b == 0) throw Mistake("division by zero");
    if (b == -1) {
      overflow = kind == 'd' && __builtin_sub_overflow(int64_t{0}, a, &result);
    } else {
      result = kind == 'd' ? floor_divide(a, b) : a - floor_divide(a, b) * b;
    }
  }
  if (overflow) throw Mistake("a number is too large");
  return result;
}

Value number_binary(const std::string& operation, const Value& a, const Value& b) {
  const bool both = !a.get<double>() && !b.get<double>();
  if (operation == "/") {
    if (to_double(b) == 0) throw Mistake("division by zero");
    return to_double(a) / to_double(b);
  }
  if (operation == "**") {
    const double power = std::pow(to_double(a), to_double(b));
    if (!both || whole(b) < 0) return power;
    if (std::abs(power) > 9e15) throw Mistake("a number is too large");
    return int64_t(power);
  }
  if (both) return integer_binary(operation == "//" ? 'd' : operation[0], whole(a), whole(b));
  const double x = to_double(a), y = to_double(b);
  if (operation == "+") return x + y;
  if (operation == "-") return x - y;
  if (operation == "*") return x * y;
  if (y == 0) throw Mistake("division by zero");
  return operation == "//" ? std::floor(x / y) : x - std::floor(x / y) * y;
}

int compare(const Value& a, const Value& b) {
  if (a.number() && b.number()) {
    const double x = to_double(a), y = to_double(b);
    return x < y ? -1 : x > y;
  }
  if (a.text() && b.text()) return a.text()->bytes.compare(b.text()->bytes);
  throw Mistake("values of types {} and {} have no order", type_name(a), type_name(b));
}

class Interpreter {
 public:
  Interpreter(const Dict& globals, const Limits& limits) : meter_(limits), deepest_(limits.depth) {
    scopes_.emplace_back();
    for (const auto& [name, value] : globals) scopes_.back()[name] = value;
  }

  Text run(const Block& program) {
    Text out;
    try {
      statements(program, out);
    } catch (const Mistake& mistake) {
      throw Mistake("line {}: {}", line_, mistake.what());
    }
    return out;
  }

 private:
  struct Deeper {
    explicit Deeper(Interpreter& of) : of_(of) {
      if (++of.depth_ > of.deepest_) throw Mistake("the template is nested too deep");
    }
    ~Deeper() { --of_.depth_; }
    Interpreter& of_;
  };

  void add(Text& out, const Text& text) {
    meter_.made(text.bytes.size());
    out += text;
  }

  Flow statements(const Block& block, Text& out) {
    const Deeper deeper(*this);
    for (const auto& statement : block) {
      const Flow flow = execute(*statement, out);
      if (flow != Flow::on) return flow;
    }
    return Flow::on;
  }

  Flow execute(const Statement& s, Text& out) {
    meter_.step();
    line_ = s.line;
    switch (s.kind) {
      case Stmt::text: add(out, Text(s.text)); break;
      case Stmt::output: add(out, to_text(value_of(*s.expression))); break;
      case Stmt::branch: return statements(truth(value_of(*s.expression)) ? s.body : s.other, out);
      case Stmt::loop: return loop(s, out);
      case Stmt::assign: assign(s); break;
      case Stmt::capture: {
        Text text;
        statements(s.body, text);
        scopes_.back()[s.targets[0]] = text;
        break;
      }
      case Stmt::block: return statements(s.body, out);
      case Stmt::macro:
        scopes_.back()[s.macro->name] = static_cast<const Macro*>(s.macro.get());
        break;
      case Stmt::stop: return Flow::stop;
      case Stmt::next: return Flow::next;
    }
    return Flow::on;
  }

  void bind(const std::vector<std::string>& targets, const Value& value) {
    if (targets.size() == 1) {
      scopes_.back()[targets[0]] = value;
      return;
    }
    const List values = elements_of(value);
    if (values.size() != targets.size())
      throw Mistake("{} values for {} names", values.size(), targets.size());
    for (size_t i = 0; i < targets.size(); ++i) scopes_.back()[targets[i]] = values[i];
  }

  void assign(const Statement& s) {
    const Value value = value_of(*s.expression);
    if (s.text.empty()) return bind(s.targets, value);
    const Value* target = find_name(s.targets[0]);
    if (!target || !target->space()) throw Mistake("'{}' is no namespace", s.targets[0]);
    if (value.has_namespace()) throw Mistake("a namespace cannot hold a namespace");
    Dict& members = (*target->space())->members;
    for (auto& [name, old] : members) {
      if (name != s.text) continue;
      old = value;
      return;
    }
    members.emplace_back(s.text, value);
  }

  Flow loop(const Statement& s, Text& out) {
    List items = elements_of(value_of(*s.expression));
    meter_.step(int64_t(items.size()));
    if (s.condition) {
      List kept;
      for (const Value& item : items) {
        scopes_.emplace_back();
        bind(s.targets, item);
        if (truth(value_of(*s.condition))) kept.push_back(item);
        scopes_.pop_back();
      }
      items = std::move(kept);
    }
    if (items.empty()) return statements(s.other, out);
    for (size_t i = 0; i < items.size(); ++i) {
      scopes_.emplace_back();
      bind(s.targets, items[i]);
      scopes_.back()["loop"] = loop_value(items, i);
      const Flow flow = statements(s.body, out);
      scopes_.pop_back();
      if (flow == Flow::stop) break;
    }
    return Flow::on;
  }

  static Value loop_value(const List& items, size_t i) {
    const auto n = int64_t(items.size()), at = int64_t(i);
    return Value::of(Dict{
        {"index", at + 1},
        {"index0", at},
        {"revindex", n - at},
        {"revindex0", n - at - 1},
        {"first", at == 0},
        {"last", at + 1 == n},
        {"length", n},
        {"previtem", i > 0 ? items[i - 1] : Value(Undefined{"loop.previtem"})},
        {"nextitem", at + 1 < n ? items[i + 1] : Value(Undefined{"loop.nextitem"})}});
  }

  const Value* find_name(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(name);
      if (found != scope->end()) return &found->second;
    }
    return nullptr;
  }

  Value value_of(const Expression& e) {
    const Deeper deeper(*this);
    meter_.step();
    switch (e.kind) {
      case Expr::literal: return e.value;
      case Expr::name: {
        const Value* found = find_name(e.text);
        return found ? *found : Value(Undefined{e.text});
      }
      case Expr::attribute: return attribute(value_of(*e.parts[0]), e.text);
      case Expr::item: return item_of(defined(*e.parts[0]), value_of(*e.parts[1]));
      case Expr::slice: return slice(e);
      case Expr::call: return call(e);
      case Expr::filter: {
        const Value value = value_of(*e.parts[0]);
        return call_filter(e.text, value, arguments(e.arguments), meter_);
      }
      case Expr::test: {
        const Value value = value_of(*e.parts[0]);
        return call_test(e.text, value, arguments(e.arguments));
      }
      case Expr::negation: return !truth(value_of(*e.parts[0]));
      case Expr::sign: {
        const Value value = value_of(*e.parts[0]);
        return e.text == "-" ? number_binary("-", Value(int64_t{0}), value) : value;
      }
      case Expr::binary: return binary(e);
      case Expr::logic: {
        Value left = value_of(*e.parts[0]);
        return truth(left) == (e.text == "or") ? left : value_of(*e.parts[1]);
      }
      case Expr::comparison: return comparison(e);
      case Expr::conditional:
        if (truth(value_of(*e.parts[1]))) return value_of(*e.parts[0]);
        return e.parts[2] ? value_of(*e.parts[2]) : Value();
      case Expr::list: {
        List list;
        for (const auto& part : e.parts) list.push_back(value_of(*part));
        return Value::of(std::move(list));
      }
      case Expr::dict: break;
    }
    Dict dict;
    for (size_t i = 0; i < e.parts.size(); i += 2) {
      const Value key = value_of(*e.parts[i]);
      if (!key.text()) throw Mistake("the key of a dict must be a string, not {}", type_name(key));
      dict.emplace_back(key.text()->bytes, value_of(*e.parts[i + 1]));
    }
    return Value::of(std::move(dict));
  }

  Value defined(const Expression& e) {
    Value value = value_of(e);
    if (value.undefined()) not_defined(value);
    return value;
  }

  static Value attribute(const Value& value, const std::string& name) {
    if (value.undefined()) not_defined(value);
    const Dict* members = value.space() ? &(*value.space())->members : value.dict();
    const Value* found = members ? find(*members, name) : nullptr;
    return found ? *found : Value(Undefined{name});
  }

  Value slice(const Expression& e) {
    const Value value = defined(*e.parts[0]);
    const auto limit = [&](size_t part) -> std::optional<int64_t> {
      if (!e.parts[part]) return {};
      const Value given = value_of(*e.parts[part]);
      if (given.none()) return {};
      return whole(given);
    };
    const int64_t step = limit(3).value_or(1);
    if (step == 0) throw Mistake("the step of a slice must not be 0");
    if (!value.text() && !value.list())
      throw Mistake("a value of type {} has no slices", type_name(value));
    const auto n = int64_t(value.text() ? code_points(value.text()->bytes) : value.list()->size());
    const auto clamp = [&](std::optional<int64_t> at, int64_t otherwise) {  // as Python does
      if (!at) return otherwise;
      if (*at < 0) *at = std::max(*at + n, step < 0 ? int64_t{-1} : int64_t{0});
      return std::min(*at, step < 0 ? n - 1 : n);
    };
    const int64_t begin = clamp(limit(1), step < 0 ? n - 1 : 0),
                  end = clamp(limit(2), step < 0 ? -1 : n);
    meter_.step(n);
    if (value.list()) {
      List some;
      for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
        some.push_back((*value.list())[size_t(i)]);
        if (step > n || step < -n) break;
      }
      return Value::of(std::move(some));
    }
    if (step != 1) throw Mistake("slices of strings with a step are not known");
    const Text& text = *value.text();
    const size_t from = offset_of(text.bytes, size_t(begin)),
                 to = offset_of(text.bytes, size_t(end));
    meter_.made(text.bytes.size());
    return text.part(from, to > from ? to - from : 0);
  }

  Arguments arguments(const std::vector<Argument>& given) {
    Arguments all;
    for (const Argument& one : given) {
      Value value = value_of(*one.value);
      if (one.name.empty()) {
        all.values.push_back(std::move(value));
      } else {
        all.named.emplace_back(one.name, std::move(value));
      }
    }
    return all;
  }

  Value call(const Expression& e) {
    const Expression& callee = *e.parts[0];
    if (callee.kind == Expr::attribute) {
      const Value object = defined(*callee.parts[0]);
      return call_method(callee.text, object, arguments(e.arguments), meter_);
    }
    if (callee.kind != Expr::name)
      throw Mistake("only functions, macros and methods can be called");
    const Value* known = find_name(callee.text);
    if (!known) return call_function(callee.text, arguments(e.arguments), meter_);
    const auto* macro = known->get<const Macro*>();
    if (!macro) throw Mistake("'{}' is no function", callee.text);
    return call_macro(**macro, arguments(e.arguments));
  }

  // A macro sees the names of the template, not those of loops around the call.
  Value call_macro(const Macro& macro, const Arguments& given) {
    given.check_most(macro.parameters.size(), macro.name);
    Scope scope;
    for (size_t i = 0; i < macro.parameters.size(); ++i) {
      const Argument& parameter = macro.parameters[i];
      const Value* value = given.get(i, parameter.name);
      scope[parameter.name] = value             ? *value
                              : parameter.value ? value_of(*parameter.value)
                                                : Value(Undefined{parameter.name});
    }
    std::vector<Scope> outer = std::move(scopes_);
    scopes_.clear();
    scopes_.push_back(std::move(outer[0]));
    scopes_.push_back(std::move(scope));
    Text out;
    statements(macro.body, out);
    outer[0] = std::move(scopes_[0]);
    scopes_ = std::move(outer);
    return out;
  }

  Value binary(const Expression& e) {
    const Value a = value_of(*e.parts[0]), b = value_of(*e.parts[1]);
    if (e.text == "~") {
      Text text = to_text(a);
      text += to_text(b);
      meter_.made(text.bytes.size());
      return text;
    }
    for (const Value* value : {&a, &b}) {
      if (value->undefined()) not_defined(*value);
    }
    if (e.text == "+" && a.text() && b.text()) {
      Text text = *a.text();
      text += *b.text();
      meter_.made(text.bytes.size());
      return text;
    }
    if (e.text == "+" && a.list() && b.list()) {
      List list = *a.list();
      list.insert(list.end(), b.list()->begin(), b.list()->end());
      meter_.step(int64_t(list.size()));
      return Value::of(std::move(list));
    }
    if (e.text == "*" && a.text() && b.get<int64_t>()) {
      Text text;
      for (int64_t i = 0; i < *b.get<int64_t>(); ++i) {
        meter_.step();
        add(text, *a.text());
      }
      return text;
    }
    if (!a.number() || !b.number())
      throw Mistake("'{}' takes no values of types {} and {}", e.text, type_name(a), type_name(b));
    return number_binary(e.text, a, b);
  }

  Value comparison(const Expression& e) {
    Value left = value_of(*e.parts[0]);
    for (size_t i = 0; i < e.texts.size(); ++i) {
      Value right = value_of(*e.parts[i + 1]);
      const std::string& operation = e.texts[i];
      bool holds = false;
      if (operation == "==")
        holds = equal(left, right);
      else if (operation == "!=")
        holds = !equal(left, right);
      else if (operation == "in")
        holds = contains(right, left);
      else if (operation == "not in")
        holds = !contains(right, left);
      else if (operation == "<")
        holds = compare(left, right) < 0;
      else if (operation == "<=")
        holds = compare(left, right) <= 0;
      else if (operation == ">")
        holds = compare(left, right) > 0;
      else
        holds = compare(left, right) >= 0;
      if (!holds) return false;
      left = std::move(right);
    }
    return true;
  }

  Meter meter_;
  const int deepest_;
  int depth_ = 0, line_ = 1;
  std::vector<Scope> scopes_;
};

}  // namespace

Text run(const Block& program, const Dict& globals, const Limits& limits) {
  return Interpreter(globals, limits).run(program);
}

}  // namespace horner::jinja
