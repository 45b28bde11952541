// The MAD suite: what counts can be answered from the sequence, and how it is distributed.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tasks/rows_test.h"

namespace horner {
namespace {

TEST(MadRecall, TargetsAreValuesOfKeysSeenBefore) {
  for (const char* task : {"mad_recall", "mad_noisy_recall:noise=0.4"}) {
    const int64_t noise_from = 16;  // in both
    int64_t noise = 0;
    for (const TestRow& row : rows(task, Split::test, 200)) {
      std::map<int64_t, int64_t> value;
      for (size_t t = 0; t < row.tokens.size(); t += 2) {
        EXPECT_EQ(row.targets[t + 1], kNoTarget);
        const int64_t key = row.tokens[t], v = row.tokens[t + 1];
        if (key >= noise_from) {
          ++noise;
          EXPECT_GE(v, noise_from);
          EXPECT_EQ(row.targets[t], kNoTarget);
          continue;
        }
        EXPECT_LT(key, 8);
        EXPECT_TRUE(v >= 8 && v < 16);
        EXPECT_EQ(row.targets[t], value.count(key) ? value[key] : kNoTarget);
        value[key] = v;
      }
      EXPECT_NE(row.targets[126], kNoTarget);  // the last pair repeats
    }
    EXPECT_NEAR(double(noise) / (200 * 63), task[4] == 'n' ? 0.4 : 0, 0.02);  // 4.6 sigma
  }
}

TEST(MadRecall, TrainsOnTheNextToken) {
  for (const char* task : {"mad_recall", "mad_noisy_recall", "mad_fuzzy_recall"}) {
    for (const TestRow& row : rows(task, Split::train, 20)) {
      for (size_t t = 0; t + 1 < row.tokens.size(); ++t) {
        EXPECT_EQ(row.targets[t], row.tokens[t + 1]) << task;
      }
      EXPECT_EQ(row.targets.back(), kNoTarget);
    }
    const auto masked = rows(std::string(task) + ":masked=true", Split::train, 20);
    EXPECT_GT(std::count(masked[0].targets.begin(), masked[0].targets.end(), kNoTarget), 40)
        << task;
  }
}

// Cuts the sequence at the change from value ids to key ids, and looks keys up.
TEST(MadFuzzyRecall, TargetsFollowFromMotifsSeenBefore) {
  std::set<size_t> sizes;
  for (const TestRow& row : rows("mad_fuzzy_recall", Split::test, 200)) {
    std::map<std::vector<int64_t>, std::vector<int64_t>> value;
    size_t t = 0;
    while (row.tokens[t] == 0) ++t;
    while (t < row.tokens.size()) {
      std::vector<int64_t> key, motif, targets;
      for (; row.tokens[t] < 8; ++t) key.push_back(row.tokens[t]);
      for (; t < row.tokens.size() && row.tokens[t] >= 8; ++t) {
        motif.push_back(row.tokens[t]);
        targets.push_back(row.targets[t - 1]);
      }
      sizes.insert(key.size());
      if (value.count(key)) {
        EXPECT_EQ(value[key], motif);
        EXPECT_EQ(targets, motif);
      } else {
        EXPECT_EQ(targets, std::vector<int64_t>(motif.size(), kNoTarget));
      }
      value[key] = motif;
    }
    EXPECT_NE(row.targets[126], kNoTarget);
    EXPECT_EQ(row.targets[127], kNoTarget);
  }
  EXPECT_EQ(sizes, (std::set<size_t>{1, 2, 3}));
}

TEST(MadMemorise, OneTableForAllSplits) {
  std::map<int64_t, int64_t> table;
  for (const Split split : {Split::train, Split::valid, Split::test}) {
    for (const TestRow& row : rows("mad_memorise", split, 100)) {
      for (size_t t = 0; t < row.tokens.size(); t += 2) {
        EXPECT_EQ(row.tokens[t + 1], 255);
        EXPECT_EQ(row.targets[t], kNoTarget);
        const auto [found, added] = table.emplace(row.tokens[t], row.targets[t + 1]);
        EXPECT_EQ(found->second, row.targets[t + 1]);
      }
    }
  }
  EXPECT_EQ(table.size(), 127u);
}

TEST(MadCompress, TargetsAreTheTokens) {
  EXPECT_TRUE(make_task("mad_compress")->shape().rebuild);
  for (const TestRow& row : rows("mad_compress", Split::test, 50)) {
    EXPECT_EQ(row.tokens.back(), 15);
    EXPECT_EQ(row.targets.back(), kNoTarget);
    for (size_t t = 0; t + 1 < row.tokens.size(); ++t) {
      EXPECT_EQ(row.targets[t], row.tokens[t]);
      EXPECT_LT(row.tokens[t], 15);
    }
  }
}

}  // namespace
}  // namespace horner
