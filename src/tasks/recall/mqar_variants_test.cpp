// Variants of mqar: the answers follow from the context alone.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <map>

#include "tasks/rows_test.h"

namespace horner {
namespace {

TEST(MqarComp, BothTokensOfAKeyAreNeeded) {
  for (const TestRow& row : rows("mqar_comp:T=100,pairs=16,vocabulary=96", Split::train, 100)) {
    std::map<std::pair<int64_t, int64_t>, int64_t> value;
    std::map<int64_t, int64_t> firsts, seconds;
    for (size_t t = 0; t < 48; t += 3) {
      value[{row.tokens[t], row.tokens[t + 1]}] = row.tokens[t + 2];
      ++firsts[row.tokens[t]];
      ++seconds[row.tokens[t + 1]];
    }
    EXPECT_EQ(value.size(), 16u);
    for (const auto& [token, count] : firsts) EXPECT_TRUE(token < 32 && count == 4);
    for (const auto& [token, count] : seconds) EXPECT_TRUE(token >= 32 && token < 64 && count == 4);
    int64_t asked = 0;
    for (size_t t = 48; t < 100; ++t) {
      if (row.targets[t] == kNoTarget) continue;
      ++asked;
      EXPECT_EQ((value.at({row.tokens[t - 1], row.tokens[t]})), row.targets[t]);
    }
    EXPECT_EQ(asked, 16);
  }
}

TEST(MqarForget, TheLastValueCounts) {
  int64_t changed = 0;
  for (const TestRow& row : rows("mqar_forget", Split::train, 100)) {
    std::map<int64_t, int64_t> first, last;
    for (size_t t = 0; t < 48; t += 2) {
      first.emplace(row.tokens[t], row.tokens[t + 1]);
      last[row.tokens[t]] = row.tokens[t + 1];
    }
    EXPECT_EQ(first.size(), 16u);
    for (size_t t = 48; t < 128; ++t) {
      if (row.targets[t] == kNoTarget) continue;
      EXPECT_EQ(last.at(row.tokens[t]), row.targets[t]);
      changed += first.at(row.tokens[t]) != row.targets[t];
    }
  }
  EXPECT_EQ(changed, 100 * 8);
}

// Linear attention by hand, with q = k = the key's half, finds the value's half.
TEST(MqarStacked, OneLayerOfAttentionAnswers) {
  const auto task = make_task("mqar_stacked:e=64,T=32,pairs=4,vocabulary=32");
  const Batch batch = task->batch(Split::test, first(50));
  const at::Tensor key = batch.features.narrow(2, 0, 64), value = batch.features.narrow(2, 64, 64);
  const at::Tensor scores = key.matmul(key.transpose(1, 2)) * 20;  // (B,T,T)
  const at::Tensor read = at::softmax(scores.narrow(2, 0, 4), 2).matmul(value.narrow(1, 0, 4));
  // The table of values, from the examples: a value's features beside its id.
  int64_t right = 0, all = 0;
  for (int64_t b = 0; b < 50; ++b) {
    for (int64_t t = 4; t < 32; ++t) {
      if (batch.targets[b][t].item<int64_t>() == kNoTarget) continue;
      const at::Tensor near = (value[b].narrow(0, 0, 4) - read[b][t]).square().sum(1).argmin();
      const at::Tensor match = (key[b].narrow(0, 0, 4) - key[b][t]).abs().sum(1).argmin();
      ++all;
      right += near.item<int64_t>() == match.item<int64_t>();
    }
  }
  EXPECT_EQ(all, 200);
  EXPECT_EQ(right, all);
}

// The same value id has the same features in every example, and another one others.
TEST(MqarStacked, OneTableForAllExamples) {
  const auto task = make_task("mqar_stacked:e=8,T=8,pairs=2,vocabulary=4");
  std::map<int64_t, at::Tensor> table;
  for (const Split split : {Split::train, Split::test}) {
    const Batch batch = task->batch(split, first(50));
    for (int64_t b = 0; b < 50; ++b) {
      for (int64_t t = 2; t < 8; ++t) {
        const int64_t target = batch.targets[b][t].item<int64_t>();
        if (target == kNoTarget) continue;
        const at::Tensor key = batch.features[b].narrow(1, 0, 8);
        const int64_t pair = (key.narrow(0, 0, 2) - key[t]).abs().sum(1).argmin().item<int64_t>();
        const at::Tensor value = batch.features[b][pair].narrow(0, 8, 8);
        const auto [found, added] = table.emplace(target, value);
        EXPECT_TRUE(at::equal(found->second, value));
      }
    }
  }
  EXPECT_EQ(table.size(), 4u);
}

}  // namespace
}  // namespace horner
