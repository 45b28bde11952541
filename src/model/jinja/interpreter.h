// Runs a template. It cannot run for ever and cannot fill the memory: steps, bytes and depth are limited.
#pragma once

#include "model/jinja/syntax.h"

namespace horner::jinja {

struct Limits {
  int64_t steps = 1'000'000;  // expressions and statements that are evaluated
  int64_t bytes = 64 << 20;   // of all texts that are made
  int depth = 300;            // of evaluation
};

// What filters, tests and methods share with the interpreter.
class Meter {
 public:
  explicit Meter(const Limits& limits) : left_(limits) {}
  void step(int64_t count = 1) {
    if ((left_.steps -= count) < 0) throw Mistake("the template does not come to an end");
  }
  void made(size_t bytes) {
    if ((left_.bytes -= int64_t(bytes)) < 0) throw Mistake("the template makes too much text");
  }

 private:
  Limits left_;
};

struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;

  // The argument of this place or name; null: not given.
  const Value* get(size_t place, std::string_view name) const;
  void check_most(size_t count, std::string_view of) const;
};

// Mistake if there is no filter, test, method or function of that name.
Value call_filter(
    const std::string& name, const Value& value, const Arguments& arguments, Meter& meter
);
bool call_test(const std::string& name, const Value& value, const Arguments& arguments);
Value call_method(
    const std::string& name, const Value& value, const Arguments& arguments, Meter& meter
);
Value call_function(const std::string& name, const Arguments& arguments, Meter& meter);
bool contains(const Value& container, const Value& element);
Value item_of(const Value& container, const Value& index);  // undefined if it has none
List elements_of(const Value& value);                       // what a loop visits

// Mistake that begins with "line N: " if the template is wrong or goes beyond a limit.
Text run(const Block& program, const Dict& globals, const Limits& limits = {});

}  // namespace horner::jinja
