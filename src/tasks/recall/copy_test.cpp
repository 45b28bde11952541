// copy, selective_copy, induction and needle: the layouts of their specifications.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tasks/rows_test.h"

namespace horner {
namespace {

TEST(Copy, Layout) {
  for (const TestRow& row : rows("copy:G=5,M=3,A=6", Split::train, 50)) {
    ASSERT_EQ(row.tokens.size(), 11u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_GE(row.tokens[i], 1);
      EXPECT_LE(row.tokens[i], 4);
      EXPECT_EQ(row.tokens[8 + i], 5);
      EXPECT_EQ(row.targets[8 + i], row.tokens[i]);
    }
    for (size_t t = 3; t < 8; ++t) EXPECT_EQ(row.tokens[t], 0);
    for (size_t t = 0; t < 8; ++t) EXPECT_EQ(row.targets[t], kNoTarget);
  }
}

TEST(Copy, StringsOfManyLengths) {
  std::set<std::ptrdiff_t> lengths;
  for (const TestRow& row : rows("copy:G=1,M=6,least=2,A=6", Split::train, 200)) {
    ASSERT_EQ(row.tokens.size(), 13u);
    const auto M = std::count(row.tokens.begin(), row.tokens.end(), 5);
    lengths.insert(M);
    for (std::ptrdiff_t t = 0; t < 13; ++t) {
      const bool asked = t > M && t <= 2 * M;  // M data, a blank, M markers, blanks
      EXPECT_EQ(row.tokens[size_t(t)] == 5, asked);
      EXPECT_EQ(row.targets[size_t(t)], asked ? row.tokens[size_t(t - M - 1)] : kNoTarget);
    }
  }
  EXPECT_EQ(lengths, (std::set<std::ptrdiff_t>{2, 3, 4, 5, 6}));
  const Batch longer =
      make_task("copy:G=1,M=6,least=2,A=6")->at_length(21)->batch(Split::test, {0, 1});
  EXPECT_EQ((longer.targets != kNoTarget).sum().item<int64_t>(), 2 * 10);
}

// $ abc | abc .: every row of training is packed with whole strings; a test row has one.
TEST(StringCopy, Layout) {
  const int64_t A = 5, start = 5, bar = 6, dot = 7, padding = 8;
  for (const Split split : {Split::train, Split::test}) {
    std::set<size_t> lengths;
    int64_t strings = 0;
    for (const TestRow& row : rows("string_copy:T=40,least=2,M=6,A=5", split, 100)) {
      ASSERT_EQ(row.tokens.size(), 40u);
      size_t t = 0, asked = 0;
      while (t < 40 && row.tokens[t] == start) {
        std::vector<int64_t> text;
        size_t s = t + 1;
        for (; s < 40 && row.tokens[s] < A; ++s) text.push_back(row.tokens[s]);
        const size_t n = text.size(), end = t + 2 * n + 2;
        if (s >= 40 || end >= 40) break;  // cut
        EXPECT_EQ(row.tokens[s], bar);
        for (size_t i = 0; i <= n; ++i) {
          EXPECT_EQ(row.targets[s + i], i < n ? text[i] : dot);
          EXPECT_EQ(row.tokens[s + 1 + i], i < n ? text[i] : dot);  // what it reads next
          ++asked;
        }
        lengths.insert(n);
        ++strings;
        t = end + 1;
      }
      EXPECT_EQ(
          row.targets.size() -
              size_t(std::count(row.targets.begin(), row.targets.end(), kNoTarget)),
          asked
      );
      if (split == Split::test) EXPECT_EQ(row.tokens.back(), padding);
    }
    EXPECT_EQ(lengths, (std::set<size_t>{2, 3, 4, 5, 6}));
    EXPECT_EQ(strings == 100, split == Split::test) << strings;
  }
  const Batch longer =
      make_task("string_copy:T=40,least=2,M=6,A=5")->at_length(103)->batch(Split::test, {0, 1});
  EXPECT_EQ((longer.targets != kNoTarget).sum().item<int64_t>(), 2 * 51);
}

TEST(SelectiveCopy, KeepsTheOrderAndSpreadsThePlaces) {
  std::vector<int64_t> used(20);
  for (const TestRow& row : rows("selective_copy:G=16,M=4,A=6", Split::train, 2000)) {
    std::vector<int64_t> data;
    for (size_t t = 0; t < 20; ++t) {
      if (row.tokens[t] == 0) continue;
      data.push_back(row.tokens[t]);
      ++used[t];
    }
    EXPECT_EQ(data, std::vector<int64_t>(row.targets.begin() + 20, row.targets.end()));
    EXPECT_EQ(std::count(row.tokens.begin(), row.tokens.end(), 5), 4);
  }
  for (const int64_t count : used) EXPECT_NEAR(double(count) / 2000, 4.0 / 20, 0.04);  // 4.5 sigma
}

TEST(Induction, Layout) {
  std::set<int64_t> places;
  for (const TestRow& row : rows("induction:T=32", Split::train, 500)) {
    const auto special = std::find(row.tokens.begin(), row.tokens.end(), 15);
    const auto p = special - row.tokens.begin();
    places.insert(p);
    EXPECT_EQ(std::count(row.tokens.begin(), row.tokens.end(), 15), 2);
    EXPECT_EQ(row.tokens[31], 15);
    EXPECT_EQ(row.targets[31], row.tokens[size_t(p) + 1]);
    EXPECT_EQ(std::count(row.targets.begin(), row.targets.end(), kNoTarget), 31);
  }
  EXPECT_EQ(places.size(), 30u);  // 0 .. T-3
}

TEST(Induction, AMillionTokens) {
  const Batch batch = make_task("induction")->at_length(1 << 20)->batch(Split::test, {0});
  EXPECT_EQ(batch.tokens.size(1), 1 << 20);
  EXPECT_EQ((batch.targets != kNoTarget).sum().item<int64_t>(), 1);
}

TEST(Needle, Layout) {
  const auto task = make_task("needle:T=200,m=6");
  const Batch batch = task->batch(Split::test, first(300));
  std::set<int64_t> depths;
  for (int64_t b = 0; b < 300; ++b) {
    const auto tokens = numbers(batch.tokens[b]), targets = numbers(batch.targets[b]);
    EXPECT_EQ(tokens[195], 2);
    std::set<int64_t> keys;
    int64_t found = -1;
    for (size_t t = 0; t + 6 <= 195; ++t) {
      if (tokens[t] != 1) continue;
      keys.insert(tokens[t + 1]);
      EXPECT_TRUE(tokens[t + 1] >= 16 && tokens[t + 1] < 144);
      for (size_t i = 2; i < 6; ++i) EXPECT_TRUE(tokens[t + i] >= 144 && tokens[t + i] < 272);
      if (tokens[t + 1] != tokens[196]) continue;
      found = int64_t(t);
      for (size_t i = 0; i < 4; ++i) EXPECT_EQ(targets[196 + i], tokens[t + 2 + i]);
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(tokens[197 + i], tokens[t + 2 + i]);
    }
    EXPECT_EQ(keys.size(), 6u);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 1), 6);
    const int64_t filler =
        std::count_if(tokens.begin(), tokens.end(), [](int64_t id) { return id >= 272; });
    EXPECT_EQ(filler, 200 - 6 * 6 - 5);
    const int64_t depth = batch.slices.at("depth")[b].item<int64_t>();
    depths.insert(depth);
    EXPECT_NEAR(double(found), double(depth) / 100 * 189, 0.51);  // of places 0 .. 189
  }
  EXPECT_EQ(depths.size(), 11u);
}

}  // namespace
}  // namespace horner
