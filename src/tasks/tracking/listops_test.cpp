// ListOps: an evaluator that others' answers check, and the distribution of the generator.
#include "tasks/tracking/listops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "core/check.h"
#include "core/data_test.h"
#include "io/compressed.h"
#include "tasks/rows_test.h"

namespace horner {
namespace {

std::vector<int64_t> ids_of(const std::string& expression) {
  const std::vector<std::string> operators = {"[MIN", "[MAX", "[MED", "[SM", "]"};
  std::vector<int64_t> ids;
  std::istringstream words(expression);
  for (std::string word; words >> word;) {
    if (word == "(" || word == ")") continue;
    const auto found = std::find(operators.begin(), operators.end(), word);
    ids.push_back(
        found == operators.end() ? 1 + std::stoll(word) : 11 + (found - operators.begin())
    );
  }
  return ids;
}

TEST(ListOps, Evaluates) {
  EXPECT_EQ(evaluate_tree(ids_of("7")), 7);
  EXPECT_EQ(evaluate_tree(ids_of("[MAX 2 9 [MIN 4 7 ] 0 ]")), 9);  // the LRA paper's example
  EXPECT_EQ(evaluate_tree(ids_of("[MED 9 1 4 ]")), 4);
  EXPECT_EQ(evaluate_tree(ids_of("[MED 9 1 4 7 ]")), 5);  // 5.5 rounded down
  EXPECT_EQ(evaluate_tree(ids_of("[SM 9 8 [SM 5 6 ] ]")), 8);
  EXPECT_EQ(evaluate_tree(ids_of("[SM 9 8 [MIN 5 6 ] ]"), 1), 7);  // the inner one is guessed: 0
  for (const char* wrong : {"[MAX 1", "[MAX ]", "1 2", "]"}) {
    EXPECT_THROW(evaluate_tree(ids_of(wrong)), UsageError) << wrong;
  }
}

// The published test set of ListOps (Nangia and Bowman).
TEST(ListOps, AgreesWithThePublishedAnswers) {
  const std::string path = test_data("listops/nangia_bowman_test_d20s.tsv.xz");
  HORNER_NEED(path);
  std::istringstream lines(read_decompressed(path));
  int64_t right = 0, all = 0;
  for (std::string line; std::getline(lines, line); ++all) {
    const size_t tab = line.find('\t');
    right += evaluate_tree(ids_of(line.substr(tab + 1))) == std::stoll(line.substr(0, tab));
  }
  EXPECT_EQ(all, 10000);
  EXPECT_EQ(right, all);
}

// Own figures of the specification, of 500,000 trees.
TEST(ListOps, AcceptsAsManyTreesAsItShould) {
  Random random(1, Split::train, Stream::content, 0);
  const int64_t n = 60000;
  int64_t kept = 0;
  for (int64_t i = 0; i < n; ++i) {
    const size_t length = draw_tree(random, 10).size();
    kept += length > 500 && length < 2000;
  }
  EXPECT_NEAR(double(kept) / double(n), 0.0827, 0.0046);  // 4 sigma
}

TEST(ListOps, LengthsAndLabelsAreDistributedAsTheyShould) {
  const int64_t n = 4000;
  const Batch batch = make_task("listops")->batch(Split::train, first(n));
  std::vector<int64_t> lengths = numbers(batch.lengths), labels = numbers(batch.labels);
  std::sort(lengths.begin(), lengths.end());
  EXPECT_GT(lengths.front(), 500);
  EXPECT_LT(lengths.back(), 2000);
  const double mean = double(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})) / n;
  EXPECT_NEAR(mean, 1035, 26);  // 4 sigma of 410 / sqrt(n)
  EXPECT_NEAR(double(lengths[n / 10]), 577, 20);
  EXPECT_NEAR(double(lengths[n / 2]), 954, 40);
  EXPECT_NEAR(double(lengths[n * 9 / 10]), 1644, 40);
  for (int64_t label = 0; label < 10; ++label) {
    const double share = double(std::count(labels.begin(), labels.end(), label)) / n;
    const bool end = label == 0 || label == 9;
    EXPECT_NEAR(share, end ? 0.1685 : 0.081, end ? 0.024 : 0.027) << label;
  }
}

TEST(ListOps, ShortcutsScoreWhatTheySay) {
  const std::vector<std::pair<std::string, double>> published = {
      {"majority", 0.169},
      {"root operator", 0.361},
      {"root digits", 0.428},
      {"1 levels", 0.595},
      {"2 levels", 0.738},
      {"3 levels", 0.834},
      {"4 levels", 0.896},
      {"5 levels", 0.935}};
  const auto baselines = make_task("listops")->baselines();
  for (const auto& [name, score] : published) {
    const auto named = [&name = name](const Baseline& b) { return b.name == name; };
    const auto found = std::find_if(baselines.begin(), baselines.end(), named);
    ASSERT_NE(found, baselines.end()) << name;
    EXPECT_NEAR(found->score, score, 0.045) << name;  // 4 sigma of 2000 examples at most
  }
}

}  // namespace
}  // namespace horner
