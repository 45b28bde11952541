#include "tasks/tracking/listops.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"

namespace horner {
namespace {

enum Id : int64_t { zero = 1, min = 11, max, med, sum, close };

void write_tree(Random& random, int64_t levels, std::vector<int64_t>& ids) {
  if (levels == 1 || random.uniform() > 0.25) {
    ids.push_back(zero + random.integer(10));
    return;
  }
  const size_t place = ids.size();
  ids.push_back(0);
  const int64_t n = 2 + random.integer(9);
  for (int64_t i = 0; i < n; ++i) write_tree(random, levels - 1, ids);
  ids[place] = min + random.integer(4);
  ids.push_back(close);
}

struct Reader {
  const std::vector<int64_t>& ids;
  const int64_t levels;
  size_t at = 0;

  int64_t next() {
    HORNER_CHECK(at < ids.size(), "[listops] a list is not closed");
    return ids[at++];
  }

  int64_t value(int64_t level) {
    const int64_t id = next();
    if (id >= zero && id < zero + 10) return id - zero;
    HORNER_CHECK(id >= min && id <= sum, "[listops] id {} does not begin a value", id);
    std::vector<int64_t> items;
    for (; at < ids.size() && ids[at] != close;) items.push_back(value(level + 1));
    next();
    HORNER_CHECK(!items.empty(), "[listops] a list is empty");
    if (level > levels) return id == min ? 0 : id == max ? 9 : 4;
    std::sort(items.begin(), items.end());
    const size_t n = items.size();
    if (id == min) return items.front();
    if (id == max) return items.back();
    if (id == med) return (items[(n - 1) / 2] + items[n / 2]) / 2;
    return std::accumulate(items.begin(), items.end(), int64_t{0}) % 10;
  }
};

// What one sees of the root alone: its operator, and the extreme of its direct digits (10: none).
struct Root {
  int64_t op, extreme;
};

Root root_of(const std::vector<int64_t>& ids) {
  Root root{ids[0], 10};
  int64_t depth = 0;
  for (const int64_t id : ids) {
    depth += (id >= min && id <= sum) - (id == close);
    if (depth != 1 || id > 10 || (root.op != min && root.op != max)) continue;
    const int64_t digit = id - zero;
    if (root.extreme == 10) root.extreme = digit;
    root.extreme = root.op == min ? std::min(root.extreme, digit) : std::max(root.extreme, digit);
  }
  return root;
}

std::vector<std::vector<int64_t>> trees(const Batch& batch) {
  std::vector<std::vector<int64_t>> list;
  const int64_t B = batch.tokens.size(0), T = batch.tokens.size(1);
  const int64_t* lengths = batch.lengths.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < B; ++row) {
    const int64_t* ids = batch.tokens.const_data_ptr<int64_t>() + row * T;
    list.emplace_back(ids, ids + lengths[row]);
  }
  return list;
}

}  // namespace

std::vector<int64_t> draw_tree(Random& random, int64_t depth) {
  std::vector<int64_t> ids;
  write_tree(random, depth, ids);
  return ids;
}

int64_t evaluate_tree(const std::vector<int64_t>& ids, int64_t levels) {
  Reader reader{ids, levels};
  const int64_t value = reader.value(1);
  HORNER_CHECK(reader.at == ids.size(), "[listops] {} ids after a tree", ids.size() - reader.at);
  return value;
}

ListOps::ListOps(const Options& o) : Generated(o), o_(o) {
  o.check("listops");
  HORNER_CHECK(
      o.above >= 0 && o.below >= o.above + 16 && o.depth >= 2 && o.depth <= 10,
      "[listops] needs 0 <= above, above + 16 <= below, depth 2 .. 10, got {}, {} and {}",
      o.above,
      o.below,
      o.depth
  );
}

TaskShape ListOps::shape() const {
  return {.T = o_.below, .vocabulary = 16, .classes = 10, .causal = false};
}

Layout ListOps::layout(Split) const {
  return {.T = o_.below, .targets = false, .labels = true, .lengths = true};
}

void ListOps::make(Split, int64_t, Random& random, Example& example) const {
  for (int64_t tries = 0; tries < 1000000; ++tries) {
    const std::vector<int64_t> ids = draw_tree(random, o_.depth);
    const auto length = int64_t(ids.size());
    if (length <= o_.above || length >= o_.below) continue;
    std::copy(ids.begin(), ids.end(), example.tokens);
    example.length = length;
    example.label = evaluate_tree(ids);
    return;
  }
  throw UsageError("[listops] no tree of depth {} has above {} tokens", o_.depth, o_.above);
}

// Rules with a table learn it from training examples; all are scored on test examples.
std::vector<Baseline> ListOps::baselines() const {
  std::vector<int64_t> indices(size_t(std::min<int64_t>(2000, size(Split::train))));
  std::iota(indices.begin(), indices.end(), 0);
  const Batch train = batch(Split::train, indices), test = test_sample(*this, 2000);
  const auto train_trees = trees(train), test_trees = trees(test);
  const auto by = [&](const std::function<int64_t(const Root&)>& feature) {
    const auto see = [&](const std::vector<std::vector<int64_t>>& list) {
      std::vector<int64_t> features;
      for (const auto& ids : list) features.push_back(feature(root_of(ids)));
      return features;
    };
    return lookup_accuracy(see(train_trees), train.labels, see(test_trees), test.labels);
  };
  std::vector<Baseline> list = {
      {"chance", 0.1, "any digit"},
      {"majority", by([](const Root&) { return 0; }), "the most frequent digit"},
      {"root operator", by([](const Root& root) { return root.op; }), "its most frequent digit"},
      {"root digits",
       by([](const Root& root) { return root.op * 16 + root.extreme; }),
       "root operator, and the least or greatest of its direct digits"}};
  for (int64_t levels = 1; levels <= 5; ++levels) {
    double right = 0;
    for (size_t i = 0; i < test_trees.size(); ++i) {
      right += evaluate_tree(test_trees[i], levels) == test.labels.const_data_ptr<int64_t>()[i];
    }
    list.push_back(
        {fmt::format("{} levels", levels),
         right / double(test_trees.size()),
         "exact for these; below, MIN is 0, MAX is 9, MED and SM are 4"}
    );
  }
  return list;
}

}  // namespace horner
