#include "tasks/tracking/group.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace horner {
namespace {

constexpr int64_t kLargest = 1024;  // order of a group

Group permutations(int64_t n, bool even_only) {
  std::vector<int64_t> p(static_cast<size_t>(n));
  std::iota(p.begin(), p.end(), 0);
  std::map<std::vector<int64_t>, int32_t> index;
  std::vector<std::vector<int64_t>> list;
  do {
    int64_t inversions = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      for (size_t j = 0; j < i; ++j) inversions += p[j] > p[i];
    }
    if (even_only && inversions % 2 != 0) continue;
    index[p] = int32_t(list.size());
    list.push_back(p);
  } while (std::next_permutation(p.begin(), p.end()));
  Group group{int64_t(list.size()), {}};
  for (const auto& a : list) {
    for (const auto& b : list) {
      for (size_t i = 0; i < p.size(); ++i) p[i] = b[size_t(a[i])];  // a first
      group.table.push_back(index.at(p));
    }
  }
  return group;
}

Group residues(int64_t n) {
  Group group{n, {}};
  for (int64_t i = 0; i < n * n; ++i) group.table.push_back(int32_t((i / n + i % n) % n));
  return group;
}

Group product(const Group& a, const Group& b) {  // (i,j) is i |b| + j
  Group group{a.order * b.order, {}};
  for (int64_t x = 0; x < group.order; ++x) {
    for (int64_t y = 0; y < group.order; ++y) {
      const int64_t i = a.times(x / b.order, y / b.order), j = b.times(x % b.order, y % b.order);
      group.table.push_back(int32_t(i * b.order + j));
    }
  }
  return group;
}

Group factor(std::string_view name) {
  int64_t n = 0;
  const char* end = name.data() + name.size();
  const bool number = name.size() > 1 && std::from_chars(name.data() + 1, end, n).ptr == end;
  const char kind = name.empty() ? ' ' : name[0];
  const int64_t largest = kind == 'Z' ? kLargest : 6;
  HORNER_CHECK(
      number && (kind == 'S' || kind == 'A' || kind == 'Z') && n >= 1 && n <= largest,
      "[group] a group is S1 .. S6, A1 .. A6, Z1 .. Z{} or a product as A4xZ5, got '{}'",
      kLargest,
      name
  );
  return kind == 'Z' ? residues(n) : permutations(n, kind == 'A');
}

}  // namespace

Group make_group(std::string_view name) {
  Group group;
  for (;;) {
    const size_t x = name.find('x');
    const Group next = factor(name.substr(0, x));
    HORNER_CHECK(
        group.order * next.order <= kLargest,
        "[group] at most {} elements, got {}",
        kLargest,
        group.order * next.order
    );
    group = product(group, next);
    if (x == name.npos) return group;
    name.remove_prefix(x + 1);
  }
}

int64_t commutator_subgroup_order(const Group& group) {
  std::vector<int64_t> inverse(static_cast<size_t>(group.order));
  for (int64_t i = 0; i < group.order * group.order; ++i) {
    if (group.table[size_t(i)] == 0) inverse[size_t(i / group.order)] = i % group.order;
  }
  std::vector<bool> seen(static_cast<size_t>(group.order));
  std::vector<int64_t> generators, members;
  const auto add = [&](int64_t x, std::vector<int64_t>& list) {
    if (!seen[size_t(x)]) list.push_back(x);
    seen[size_t(x)] = true;
  };
  for (int64_t a = 0; a < group.order; ++a) {
    for (int64_t b = 0; b < group.order; ++b) {
      const int64_t inverses = group.times(inverse[size_t(a)], inverse[size_t(b)]);
      add(group.times(group.times(a, b), inverses), generators);
    }
  }
  members = generators;
  for (size_t i = 0; i < members.size(); ++i) {
    for (const int64_t g : generators) add(group.times(members[i], g), members);
  }
  return int64_t(members.size());
}

GroupWords::GroupWords(const Options& o) : Generated(o), o_(o), group_(make_group(o.group)) {
  o.check("group");
  HORNER_CHECK(o.k >= 1, "[group] k must be at least 1, got {}", o.k);
  HORNER_CHECK(group_.order >= 2, "[group] {} has one element only", o.group);
}

TaskShape GroupWords::shape() const { return {.T = o_.k + 1, .vocabulary = 2 + group_.order}; }

Layout GroupWords::layout(Split) const { return {.T = o_.k + 1, .slices = {"length"}}; }

void GroupWords::make(Split, int64_t, Random& random, Example& example) const {
  example.tokens[0] = 1;
  int64_t y = 0;
  for (int64_t i = 1; i <= o_.k; ++i) {
    const int64_t x = random.integer(group_.order);
    y = group_.times(y, x);
    example.tokens[i] = 2 + x;
    example.targets[i] = 2 + y;
  }
  example.slices[0] = o_.k + 1;
}

std::shared_ptr<Task> GroupWords::at_length(int64_t T) const {
  Options options = o_;
  options.k = T - 1;
  return std::make_shared<GroupWords>(options);
}

// Who knows y_i up to the commutator subgroup, as a commutative rule can, guesses among its elements.
std::vector<Baseline> GroupWords::baselines() const {
  const double order = double(group_.order), rest = double(commutator_subgroup_order(group_));
  return {
      {"chance", std::pow(order, -double(o_.k)), "any element, all k right"},
      {"commutative", std::pow(rest, -double(o_.k - 1)), "x_1, then as if order were no matter"},
      {"token chance", 1 / order, "any element, of one token"},
      {"token commutative", 1 / rest, "as if order were no matter, of one token"}};
}

}  // namespace horner
