// How large an automaton may become. Patterns and schemas come from clients that may be hostile.
#pragma once

#include <cstdint>

#include "core/check.h"

namespace horner::grammar {

constexpr int64_t kMostStates =
    100'000;  // of all automata of one grammar, before and after they are made deterministic
constexpr int64_t kMostWork = 10'000'000;  // edges that are looked at; about 0.2 s
constexpr int32_t kMostDepth = 64;         // rules inside of rules, while a text is read
constexpr int32_t kMostNesting = 100;      // groups of a pattern, schemas inside of schemas

// Shared by all steps of one compilation. UsageError when it is spent.
class Budget {
 public:
  void add_state() {
    HORNER_CHECK(
        ++states_ <= kMostStates,
        "it needs more than {} states; make its counts or its lists shorter",
        kMostStates
    );
  }
  void add_work(int64_t amount = 1) {
    work_ += amount;
    HORNER_CHECK(work_ <= kMostWork, "it takes too long to compile; make it simpler");
  }

 private:
  int64_t states_ = 0, work_ = 0;
};

}  // namespace horner::grammar
