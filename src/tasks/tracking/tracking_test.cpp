// parity, modarith and group: against other ways to compute the same.
#include <gtest/gtest.h>

#include <set>

#include "core/check.h"
#include "tasks/rows_test.h"
#include "tasks/tracking/group.h"

namespace horner {
namespace {

TEST(Parity, IsTheXorOfTheBits) {
  for (const TestRow& row : rows("parity", Split::test, 200)) {
    int64_t ones = 0;
    for (const int64_t token : row.tokens) ones += token == 2;
    EXPECT_EQ(row.targets.back(), 1 + ones % 2);
    for (size_t t = 0; t + 1 < row.targets.size(); ++t) EXPECT_EQ(row.targets[t], kNoTarget);
  }
  for (const TestRow& row : rows("cumparity", Split::test, 200)) {
    int64_t ones = 0;
    for (size_t t = 0; t < row.tokens.size(); ++t) {
      ones += row.tokens[t] == 2;
      EXPECT_EQ(row.targets[t], 1 + ones % 2);
    }
  }
}

TEST(Parity, LengthsCoverTheirRange) {
  std::set<size_t> train, test;
  for (const TestRow& row : rows("parity", Split::train, 1000)) train.insert(row.tokens.size());
  for (const TestRow& row : rows("parity:test=9000", Split::test, 9000))
    test.insert(row.tokens.size());
  EXPECT_EQ(train.size(), 38u);
  EXPECT_EQ(*train.begin(), 3u);
  EXPECT_EQ(*train.rbegin(), 40u);
  EXPECT_EQ(test.size(), 217u);
  EXPECT_EQ(*test.begin(), 40u);
  EXPECT_EQ(*test.rbegin(), 256u);
}

// A calculator by recursive descent:
//   sum = product ((+|-) product)*   product = factor (x factor)*   factor = - factor | ( sum ) | number
struct Calculator {
  const std::vector<int64_t>& ids;
  size_t at = 0;

  int64_t factor() {
    const int64_t id = ids.at(at++);
    if (id == 2) return -factor();
    if (id == 10) {
      const int64_t value = sum();
      if (ids.at(at++) != 11) throw UsageError("a bracket is not closed");
      return value;
    }
    if (id < 5 || id > 9) throw UsageError("{} is no number", id);
    return id - 5;
  }

  int64_t product() {
    int64_t value = factor();
    while (ids.at(at) == 3) {
      ++at;
      value = value * factor() % 5;
    }
    return value;
  }

  int64_t sum() {
    int64_t value = product();
    while (ids.at(at) == 1 || ids.at(at) == 2) {
      const int64_t sign = ids.at(at++) == 1 ? 1 : -1;
      value += sign * product();
    }
    return value;
  }

  int64_t result() {
    const int64_t value = sum();
    if (ids.at(at++) != 4 || at != ids.size()) throw UsageError("it does not end at =");
    return (value % 5 + 5) % 5;
  }
};

TEST(Modarith, AgreesWithACalculator) {
  for (const char* task : {"modarith", "modarith_brackets", "modarith_brackets:times=true"}) {
    for (const Split split : {Split::train, Split::test}) {
      std::set<int64_t> ids, lengths;
      for (const TestRow& row : rows(task, split, 500)) {
        EXPECT_EQ(row.targets.back(), 5 + Calculator{row.tokens}.result()) << task;
        ids.insert(row.tokens.begin(), row.tokens.end());
        lengths.insert(int64_t(row.tokens.size()));
      }
      const bool brackets = task[8] == '_', times = !brackets || task[17] == ':';
      EXPECT_EQ(ids.size(), (brackets ? 10u : 8u) + times) << task;  // all but the pad
      EXPECT_EQ(*lengths.rbegin(), split == Split::train ? 40 : 256) << task;
      if (!brackets) {
        for (const int64_t length : lengths) EXPECT_EQ(length % 2, 0);
      }
    }
  }
}

struct Order {
  const char* name;
  int64_t order, commutators;  // |G|, |[G,G]|
  bool commutative;
};

TEST(Group, TablesAreGroups) {
  const std::vector<Order> groups = {
      {"S3", 6, 3, false},
      {"S4", 24, 12, false},
      {"S5", 120, 60, false},
      {"A4", 12, 4, false},
      {"A5", 60, 60, false},
      {"Z60", 60, 1, true},
      {"A4xZ5", 60, 4, false},
      {"Z2xZ3xZ5", 30, 1, true}};
  for (const Order& expected : groups) {
    SCOPED_TRACE(expected.name);
    const Group group = make_group(expected.name);
    const int64_t n = group.order;
    ASSERT_EQ(n, expected.order);
    bool commutative = true;
    for (int64_t a = 0; a < n; ++a) {
      EXPECT_EQ(group.times(0, a), a);
      EXPECT_EQ(group.times(a, 0), a);
      std::set<int64_t> row;  // a row holds every element once: closure and inverses
      for (int64_t b = 0; b < n; ++b) {
        row.insert(group.times(a, b));
        commutative &= group.times(a, b) == group.times(b, a);
      }
      EXPECT_EQ(int64_t(row.size()), n);
      EXPECT_EQ(*row.rbegin(), n - 1);
    }
    EXPECT_EQ(commutative, expected.commutative);
    int64_t wrong = 0;
    const int64_t stride = n > 60 ? 7 : 1;  // S5: one in 343
    for (int64_t a = 0; a < n; a += stride) {
      for (int64_t b = 0; b < n; b += stride) {
        for (int64_t c = 0; c < n; c += stride) {
          wrong += group.times(group.times(a, b), c) != group.times(a, group.times(b, c));
        }
      }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(commutator_subgroup_order(group), expected.commutators);
  }
}

// S3 in lexicographic order: 012 021 102 120 201 210. First 021, then 102: 0->0->1, 1->2->2, 2->1->0.
TEST(Group, AppliesTheLeftFactorFirst) {
  const Group S3 = make_group("S3");
  EXPECT_EQ(S3.times(1, 2), 3);
  EXPECT_EQ(S3.times(2, 1), 4);
  EXPECT_EQ(make_group("A4xZ5").times(7, 3), 5);  // (1,2)(0,3) = (1,0)
}

TEST(Group, TargetsAreTheProductsSoFar) {
  const Group S5 = make_group("S5");
  for (const TestRow& row : rows("group:k=30", Split::train, 100)) {
    EXPECT_EQ(row.tokens[0], 1);
    EXPECT_EQ(row.targets[0], kNoTarget);
    EXPECT_EQ(row.targets[1], row.tokens[1]);
    for (size_t i = 2; i < row.tokens.size(); ++i) {
      EXPECT_EQ(row.targets[i] - 2, S5.times(row.targets[i - 1] - 2, row.tokens[i] - 2));
    }
  }
  EXPECT_EQ(make_task("group")->metric(), "sequence accuracy");
}

}  // namespace
}  // namespace horner
