#include "tasks/recall/mad.h"

#include <algorithm>
#include <set>

#include "core/check.h"

namespace horner {
namespace {

void next_tokens(Example& example, int64_t T) {
  for (int64_t t = 0; t + 1 < T; ++t) example.targets[t] = example.tokens[t + 1];
}

// The share of targets that are the sequence's most frequent token of the ids from `low` to `high`.
Baseline most_frequent_value(const Task& task, int64_t low, int64_t high) {
  const auto score = [&](const std::vector<int64_t>& targets, const std::vector<int64_t>& tokens) {
    std::vector<int64_t> count(static_cast<size_t>(high - low));
    for (const int64_t token : tokens) {
      if (token >= low && token < high) ++count[size_t(token - low)];
    }
    const int64_t top = low + (std::max_element(count.begin(), count.end()) - count.begin());
    return double(std::count(targets.begin(), targets.end(), top)) / double(targets.size());
  };
  const double share = mean_score(test_sample(task), score);
  return {"shortcut", share, "the most frequent value of the sequence"};
}

template <class T>
std::shared_ptr<Task> with_length(typename T::Options options, int64_t length) {
  options.T = length;
  return std::make_shared<T>(options);
}

}  // namespace

MadRecall::MadRecall(const Options& o) : Generated(o), o_(o), half_((o.N - o.noise_ids) / 2) {
  o.check("mad_recall");
  HORNER_CHECK(o.T >= 4 && o.T % 2 == 0, "[mad_recall] T must be even, at least 4, got {}", o.T);
  HORNER_CHECK(
      o.noise_ids >= 0 && half_ >= 2 && 2 * half_ == o.N - o.noise_ids,
      "[mad_recall] N - noise_ids must be even and at least 4, got {} - {}",
      o.N,
      o.noise_ids
  );
  HORNER_CHECK(
      o.noise >= 0 && o.noise < 1 && (o.noise == 0 || o.noise_ids > 0),
      "[mad_recall] noise must be in [0,1), and 0 without noise_ids, got {}",
      o.noise
  );
}

TaskShape MadRecall::shape() const { return {.T = o_.T, .vocabulary = o_.N}; }

Layout MadRecall::layout(Split) const { return {.T = o_.T}; }

void MadRecall::make(Split split, int64_t, Random& random, Example& example) const {
  std::vector<int64_t> value(static_cast<size_t>(half_)), seen;
  for (int64_t& v : value) v = half_ + random.integer(half_);
  for (int64_t t = 0; t < o_.T; t += 2) {
    const bool last = t == o_.T - 2, need = t == o_.T - 4 && seen.empty();
    const bool noise = o_.noise > 0 && !last && !need && random.uniform() < o_.noise;
    if (noise) {
      for (int64_t i = 0; i < 2; ++i) {
        example.tokens[t + i] = 2 * half_ + random.integer(o_.noise_ids);
      }
      continue;
    }
    const int64_t key =
        last ? seen[size_t(random.integer(int64_t(seen.size())))] : random.integer(half_);
    example.tokens[t] = key;
    example.tokens[t + 1] = value[size_t(key)];
    if (std::find(seen.begin(), seen.end(), key) == seen.end()) {
      seen.push_back(key);
    } else {
      example.targets[t] = value[size_t(key)];
    }
  }
  if (split == Split::train && !o_.masked) next_tokens(example, o_.T);
}

std::shared_ptr<Task> MadRecall::at_length(int64_t T) const {
  return with_length<MadRecall>(o_, T);
}

std::vector<Baseline> MadRecall::baselines() const {
  return {
      {"chance", 1.0 / double(half_), "any value"}, most_frequent_value(*this, half_, 2 * half_)};
}

MadFuzzyRecall::MadFuzzyRecall(const Options& o) : Generated(o), o_(o) {
  o.check("mad_fuzzy_recall");
  HORNER_CHECK(
      o.N >= 6 && o.N % 2 == 0, "[mad_fuzzy_recall] N must be even, at least 6, got {}", o.N
  );
  HORNER_CHECK(o.motif >= 2, "[mad_fuzzy_recall] motif must be at least 2, got {}", o.motif);
  HORNER_CHECK(
      o.T >= 4 * o.motif,
      "[mad_fuzzy_recall] T must hold two pairs of {} tokens, got {}",
      2 * o.motif,
      o.T
  );
}

TaskShape MadFuzzyRecall::shape() const { return {.T = o_.T, .vocabulary = o_.N}; }

Layout MadFuzzyRecall::layout(Split) const { return {.T = o_.T}; }

void MadFuzzyRecall::make(Split split, int64_t, Random& random, Example& example) const {
  using Motif = std::vector<int64_t>;
  const int64_t half = o_.N / 2;
  const auto draw = [&](int64_t low, int64_t ids) {
    Motif motif(size_t(1 + random.integer(o_.motif)));
    for (int64_t& id : motif) id = low + random.integer(ids);
    return motif;
  };
  std::vector<Motif> keys, values;
  std::set<Motif> drawn;
  while (int64_t(keys.size()) < half) {  // distinct keys, each with its value
    Motif key = draw(1, half - 1);
    if (!drawn.insert(key).second) continue;
    keys.push_back(std::move(key));
    values.push_back(draw(half, half));
  }
  std::vector<size_t> pairs, seen;
  int64_t used = 0;
  const auto add = [&](size_t key) {
    pairs.push_back(key);
    used += int64_t(keys[key].size() + values[key].size());
  };
  while (used + 4 * o_.motif <= o_.T) {  // room for any pair, and for the last
    const auto key = size_t(random.integer(half));
    add(key);
    if (std::find(seen.begin(), seen.end(), key) == seen.end()) seen.push_back(key);
  }
  add(seen[size_t(random.integer(int64_t(seen.size())))]);
  int64_t t = o_.T - used;
  seen.clear();
  for (const size_t pair : pairs) {
    for (const int64_t id : keys[pair]) example.tokens[t++] = id;
    const bool known = std::find(seen.begin(), seen.end(), pair) != seen.end();
    if (!known) seen.push_back(pair);
    for (const int64_t id : values[pair]) {
      if (known) example.targets[t - 1] = id;
      example.tokens[t++] = id;
    }
  }
  if (split == Split::train && !o_.masked) next_tokens(example, o_.T);
}

std::shared_ptr<Task> MadFuzzyRecall::at_length(int64_t T) const {
  return with_length<MadFuzzyRecall>(o_, T);
}

std::vector<Baseline> MadFuzzyRecall::baselines() const {
  return {
      {"chance", 2.0 / double(o_.N), "any token of a value"},
      most_frequent_value(*this, o_.N / 2, o_.N)};
}

MadMemorise::MadMemorise(const Options& o) : Generated(o), o_(o) {
  o.check("mad_memorise");
  HORNER_CHECK(o.N >= 5, "[mad_memorise] N must be at least 5, got {}", o.N);
  HORNER_CHECK(o.T >= 2 && o.T % 2 == 0, "[mad_memorise] T must be even, at least 2, got {}", o.T);
  const int64_t K = (o.N - 1) / 2;
  Random random = o.random(Split::train, 0, Stream::noise);  // no example draws from it
  for (int64_t key = 0; key < K; ++key) table_.push_back(K + random.integer(K));
}

TaskShape MadMemorise::shape() const { return {.T = o_.T, .vocabulary = o_.N}; }

Layout MadMemorise::layout(Split) const { return {.T = o_.T}; }

void MadMemorise::make(Split, int64_t, Random& random, Example& example) const {
  for (int64_t t = 0; t < o_.T; t += 2) {
    const int64_t key = random.integer(int64_t(table_.size()));
    example.tokens[t] = key;
    example.tokens[t + 1] = o_.N - 1;
    example.targets[t + 1] = table_[size_t(key)];
  }
}

std::shared_ptr<Task> MadMemorise::at_length(int64_t T) const {
  return with_length<MadMemorise>(o_, T);
}

std::vector<Baseline> MadMemorise::baselines() const {
  return {
      {"chance", 1.0 / double(table_.size()), "any value"},
      {"majority", share_of_most_frequent(table_), "the value that most keys have"}};
}

MadCompress::MadCompress(const Options& o) : Generated(o), o_(o) {
  o.check("mad_compress");
  HORNER_CHECK(
      o.N >= 3 && o.T >= 2, "[mad_compress] needs N >= 3, T >= 2, got {} and {}", o.N, o.T
  );
}

TaskShape MadCompress::shape() const { return {.T = o_.T, .vocabulary = o_.N, .rebuild = true}; }

Layout MadCompress::layout(Split) const { return {.T = o_.T}; }

void MadCompress::make(Split, int64_t, Random& random, Example& example) const {
  for (int64_t t = 0; t + 1 < o_.T; ++t) {
    example.tokens[t] = example.targets[t] = random.integer(o_.N - 1);
  }
  example.tokens[o_.T - 1] = o_.N - 1;
}

std::shared_ptr<Task> MadCompress::at_length(int64_t T) const {
  return with_length<MadCompress>(o_, T);
}

std::vector<Baseline> MadCompress::baselines() const {
  const double most = mean_score(test_sample(*this), [](const auto& targets, const auto&) {
    return share_of_most_frequent(targets);
  });
  return {
      {"chance", 1.0 / double(o_.N - 1), "any token"},
      {"one token", most, "the most frequent token, everywhere"}};
}

}  // namespace horner
