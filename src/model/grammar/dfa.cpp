#include "model/grammar/dfa.h"

#include <algorithm>
#include <bitset>
#include <map>

namespace horner::grammar {
namespace {

using Subset = std::vector<int32_t>;  // of states, in order

class Determination {
 public:
  Determination(const Nfa& nfa, Budget& budget)
      : nfa_(nfa), budget_(budget), seen_(nfa.states().size(), 0) {}

  Dfa run() {
    id_of({kStart});
    for (size_t at = 0; at < subsets_.size(); ++at) {
      const Subset subset = *subsets_[at];
      dfa_.states[at].accepts = std::binary_search(subset.begin(), subset.end(), kEnd);
      add_bytes(at, subset);
      add_calls(at, subset);
    }
    return std::move(dfa_);
  }

 private:
  // What jumps reach from these states.
  Subset closure(Subset states) {
    ++round_;
    std::erase_if(states, [&](int32_t s) {
      return std::exchange(seen_[size_t(s)], round_) == round_;
    });
    for (size_t at = 0; at < states.size(); ++at) {
      const Nfa::State& state = nfa_.states()[size_t(states[at])];
      budget_.add_work(1 + int64_t(state.jumps.size()));
      for (const int32_t to : state.jumps) {
        if (std::exchange(seen_[size_t(to)], round_) != round_) states.push_back(to);
      }
    }
    std::sort(states.begin(), states.end());
    return states;
  }

  int32_t id_of(Subset states) {
    const auto [found, is_new] =
        ids_.emplace(closure(std::move(states)), int32_t(dfa_.states.size()));
    if (is_new) {
      budget_.add_state();
      dfa_.states.emplace_back();
      subsets_.push_back(&found->first);
    }
    return found->second;
  }

  void add_bytes(size_t from, const Subset& subset) {
    std::bitset<257> cuts;  // where the set of targets changes
    std::vector<ByteEdge> edges;
    for (const int32_t s : subset) {
      for (const ByteEdge& edge : nfa_.states()[size_t(s)].edges) {
        edges.push_back(edge);
        cuts.set(edge.first);
        cuts.set(size_t(edge.last) + 1);
      }
    }
    for (size_t first = 0; first < 256;) {
      size_t end = first + 1;
      while (end < 256 && !cuts[end]) ++end;
      Subset targets;
      budget_.add_work(int64_t(edges.size()));
      for (const ByteEdge& edge : edges) {
        if (edge.first <= first && first <= edge.last) targets.push_back(edge.to);
      }
      if (!targets.empty()) {
        const int32_t to = id_of(std::move(targets));
        auto& made = dfa_.states[from].edges;
        if (!made.empty() && made.back().to == to && made.back().last + 1U == first) {
          made.back().last = uint8_t(end - 1);
        } else {
          made.push_back({uint8_t(first), uint8_t(end - 1), to});
        }
      }
      first = end;
    }
  }

  void add_calls(size_t from, const Subset& subset) {
    std::map<int32_t, Subset> by_rule;
    for (const int32_t s : subset) {
      for (const CallEdge& call : nfa_.states()[size_t(s)].calls)
        by_rule[call.rule].push_back(call.to);
    }
    for (auto& [rule, targets] : by_rule) {
      const int32_t to = id_of(std::move(targets));
      dfa_.states[from].calls.push_back({rule, to});
    }
  }

  const Nfa& nfa_;
  Budget& budget_;
  std::vector<int64_t> seen_;  // the round in which a state was seen last
  int64_t round_ = 0;
  std::map<Subset, int32_t> ids_;
  std::vector<const Subset*> subsets_;
  Dfa dfa_;
};

}  // namespace

int32_t next_state(const Dfa::State& state, uint8_t byte) {
  for (const ByteEdge& edge : state.edges) {
    if (byte <= edge.last) return byte >= edge.first ? edge.to : -1;
  }
  return -1;
}

Dfa deterministic(const Nfa& nfa, Budget& budget) { return Determination(nfa, budget).run(); }

Dfa product(const Dfa& a, const Dfa& b, Keep keep, Budget& budget) {
  Dfa made;
  std::map<std::pair<int32_t, int32_t>, int32_t> ids;  // -1: b has no such state
  std::vector<std::pair<int32_t, int32_t>> pairs;
  const auto id_of = [&](std::pair<int32_t, int32_t> pair) {
    const auto [found, is_new] = ids.emplace(pair, int32_t(pairs.size()));
    if (is_new) {
      budget.add_state();
      pairs.push_back(pair);
      made.states.emplace_back();
    }
    return found->second;
  };
  id_of({0, 0});
  for (size_t at = 0; at < pairs.size(); ++at) {
    const auto [left, right] = pairs[at];
    const Dfa::State& one = a.states[size_t(left)];
    const bool in_b = right >= 0 && b.states[size_t(right)].accepts;
    made.states[at].accepts = one.accepts && in_b == (keep == Keep::both);
    for (const ByteEdge& edge : one.edges) {
      for (int byte = edge.first; byte <= edge.last; ++byte) {
        budget.add_work();
        const int32_t other = right < 0 ? -1 : next_state(b.states[size_t(right)], uint8_t(byte));
        if (other < 0 && keep == Keep::both) continue;
        const int32_t to = id_of({edge.to, other});
        auto& edges = made.states[at].edges;
        if (!edges.empty() && edges.back().to == to && edges.back().last + 1 == byte) {
          edges.back().last = uint8_t(byte);
        } else {
          edges.push_back({uint8_t(byte), uint8_t(byte), to});
        }
      }
    }
  }
  return made;
}

void insert(Nfa& nfa, int32_t from, const Dfa& dfa, int32_t to) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < dfa.states.size(); ++i) ids.push_back(nfa.add());
  nfa.jump(from, ids[0]);
  for (size_t i = 0; i < dfa.states.size(); ++i) {
    for (const ByteEdge& edge : dfa.states[i].edges)
      nfa.byte(ids[i], edge.first, edge.last, ids[size_t(edge.to)]);
    if (dfa.states[i].accepts) nfa.jump(ids[i], to);
  }
}

bool has_text(const Dfa& dfa) {  // every state of ours is reached from the start
  return std::any_of(dfa.states.begin(), dfa.states.end(), [](const Dfa::State& s) {
    return s.accepts;
  });
}

}  // namespace horner::grammar
