#include "model/grammar/grammar.h"

#include <algorithm>
#include <set>

#include "model/grammar/regex.h"

namespace horner::grammar {
namespace {

constexpr int32_t kUnknown = kMostDepth + 1;

// Nothing is left to read after a call that returns here, so the call needs no place to return to.
bool only_ends(const Dfa::State& state) {
  return state.accepts && state.edges.empty() && state.calls.empty();
}

// heights[s] = 0 if s accepts, else the least of heights[t] over edges to t, and of max(1 + height of the rule, heights[t])
// over calls (without the 1 if t only ends). Found in the order of heights, backwards from the ends.
class Heights {
 public:
  explicit Heights(Grammar& grammar) : g_(grammar), before_(g_.states.size()) {
    g_.heights.assign(g_.states.size(), kUnknown);
    for (size_t s = 0; s < g_.states.size(); ++s) {
      for (const ByteEdge& edge : g_.states[s].edges)
        before_[size_t(edge.to)].push_back(int32_t(s));
      for (const CallEdge& call : g_.states[s].calls) {
        before_[size_t(call.to)].push_back(int32_t(s));
        before_[size_t(g_.starts[size_t(call.rule)])].push_back(int32_t(s));
        if (callers_.empty() || callers_.back() != int32_t(s)) callers_.push_back(int32_t(s));
      }
    }
  }

  void find() {
    for (size_t s = 0; s < g_.states.size(); ++s) {
      if (g_.states[s].accepts) set(int32_t(s), 0);
    }
    spread(0);
    for (int32_t height = 1; height <= kMostDepth; ++height) {
      for (const int32_t caller : callers_) {
        if (possible(caller, height)) set(caller, height);
      }
      spread(height);
    }
  }

 private:
  void set(int32_t state, int32_t height) {
    if (g_.heights[size_t(state)] < kUnknown) return;
    g_.heights[size_t(state)] = height;
    found_.push_back(state);
  }
  bool possible(int32_t state, int32_t height) const {
    const Dfa::State& s = g_.states[size_t(state)];
    const auto reached = [&](int32_t to) { return g_.heights[size_t(to)] <= height; };
    return std::any_of(s.edges.begin(), s.edges.end(), [&](auto& e) { return reached(e.to); }) ||
           std::any_of(s.calls.begin(), s.calls.end(), [&](const CallEdge& call) {
             const int32_t rule = g_.heights[size_t(g_.starts[size_t(call.rule)])];
             const int32_t depth = only_ends(g_.states[size_t(call.to)]) ? 0 : 1;
             return reached(call.to) && rule + depth <= height;
           });
  }
  void spread(int32_t height) {
    while (!found_.empty()) {
      const int32_t state = found_.back();
      found_.pop_back();
      for (const int32_t from : before_[size_t(state)]) {
        if (g_.heights[size_t(from)] == kUnknown && possible(from, height)) set(from, height);
      }
    }
  }

  Grammar& g_;
  std::vector<std::vector<int32_t>> before_;
  std::vector<int32_t> callers_, found_;
};

// A rule that calls itself before it reads a byte would be read for ever.
void check_progress(const Grammar& g, const std::vector<Rule>& rules) {
  enum Mark { fresh, open, done };
  std::vector<Mark> marks(rules.size(), fresh);
  std::vector<std::pair<size_t, size_t>> path;  // rule, its next call
  for (size_t first = 0; first < rules.size(); ++first) {
    if (marks[first] != fresh) continue;
    path = {{first, 0}};
    marks[first] = open;
    while (!path.empty()) {
      auto& [rule, next] = path.back();
      const auto& calls = g.states[size_t(g.starts[rule])].calls;
      if (next == calls.size()) {
        marks[rule] = done;
        path.pop_back();
        continue;
      }
      const auto called = size_t(calls[next++].rule);
      HORNER_CHECK(
          marks[called] != open, "{}: refers to itself and nothing else", rules[called].name
      );
      if (marks[called] == done) continue;
      marks[called] = open;
      path.emplace_back(called, 0);
    }
  }
}

// Takes out what has no end.
void prune(Grammar& g) {
  const auto dead = [&](int32_t state) { return g.heights[size_t(state)] == kUnknown; };
  for (Dfa::State& state : g.states) {
    std::erase_if(state.edges, [&](const ByteEdge& edge) { return dead(edge.to); });
    std::erase_if(state.calls, [&](const CallEdge& call) {
      return dead(call.to) || dead(g.starts[size_t(call.rule)]);
    });
  }
}

void find_classes(Grammar& g) {
  std::array<bool, 257> begins{};
  for (const Dfa::State& state : g.states) {
    for (const ByteEdge& edge : state.edges)
      begins[edge.first] = begins[size_t(edge.last) + 1] = true;
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte]) ++g.class_count;
    g.classes[byte] = uint8_t(g.class_count);
  }
  ++g.class_count;
}

constexpr size_t kMostReadings = 32;  // more are dropped; those that are left can be completed

// Follows calls and ends of rules until each reading waits for a byte.
class Closure {
 public:
  explicit Closure(const Grammar& grammar) : g_(grammar) {}

  void add(std::vector<int32_t> reading) {
    const auto depth = int32_t(reading.size()) - 1;
    if (depth + g_.heights[size_t(reading.back())] > kMostDepth) return;
    if (seen_.insert(reading).second) open_.push_back(std::move(reading));
  }

  Readings run() {
    std::vector<std::vector<int32_t>> waiting;
    bool ends = false;
    while (!open_.empty() && waiting.size() < kMostReadings) {  // the newest first: it soon waits
      const std::vector<int32_t> reading = std::move(open_.back());
      open_.pop_back();
      const Dfa::State& state = g_.states[size_t(reading.back())];
      if (!state.edges.empty()) waiting.push_back(reading);
      for (const CallEdge& call : state.calls) enter(reading, call);
      if (state.accepts && reading.size() == 1) ends = true;
      if (state.accepts && reading.size() > 1) add({reading.begin(), reading.end() - 1});
    }
    std::sort(waiting.begin(), waiting.end());
    Readings made;
    if (waiting.empty() && !ends) return made;
    made.push_back(ends ? 1 : 0);
    for (const std::vector<int32_t>& reading : waiting) {
      made.push_back(int32_t(reading.size()));
      made.insert(made.end(), reading.begin(), reading.end());
    }
    return made;
  }

 private:
  void enter(std::vector<int32_t> reading, const CallEdge& call) {
    const auto depth = int32_t(reading.size()) - 1;
    if (depth + g_.heights[size_t(call.to)] > kMostDepth) return;
    reading.back() = call.to;
    if (only_ends(g_.states[size_t(call.to)])) reading.pop_back();
    reading.push_back(g_.starts[size_t(call.rule)]);
    add(std::move(reading));
  }

  const Grammar& g_;
  std::vector<std::vector<int32_t>> open_;
  std::set<std::vector<int32_t>> seen_;
};

}  // namespace

Grammar linked(const std::vector<Rule>& rules) {
  Grammar g;
  for (const Rule& rule : rules) {
    const auto base = int32_t(g.states.size());
    g.starts.push_back(base);
    for (Dfa::State state : rule.automaton.states) {
      for (ByteEdge& edge : state.edges) edge.to += base;
      for (CallEdge& call : state.calls) call.to += base;
      g.states.push_back(std::move(state));
    }
  }
  check_progress(g, rules);
  Heights(g).find();
  HORNER_CHECK(
      g.heights[0] <= kMostDepth,
      "{}: no text satisfies it, or only one that is nested more than {} deep",
      rules[0].name,
      kMostDepth
  );
  prune(g);
  find_classes(g);
  return g;
}

Grammar regex_grammar(std::string_view pattern) {
  Budget budget;
  Nfa nfa(budget);
  Dfa automaton;
  try {
    add_regex(nfa, kStart, pattern, Coding::plain, Search::whole, kEnd);
    automaton = deterministic(nfa, budget);
  } catch (const UsageError& error) {
    throw UsageError("the regular expression: {}", error.what());
  }
  return linked({{"the regular expression", std::move(automaton)}});
}

Readings first_readings(const Grammar& grammar) {
  Closure closure(grammar);
  closure.add({grammar.starts[0]});
  return closure.run();
}

Readings after(const Grammar& grammar, const Readings& readings, uint8_t byte) {
  Closure closure(grammar);
  for (size_t at = 1; at < readings.size(); at += size_t(readings[at]) + 1) {
    const int32_t* const begin = readings.data() + at + 1;
    std::vector<int32_t> reading(begin, begin + readings[at]);
    reading.back() = next_state(grammar.states[size_t(reading.back())], byte);
    if (reading.back() >= 0) closure.add(std::move(reading));
  }
  return closure.run();
}

}  // namespace horner::grammar
