#include "tasks/recall/string_copy.h"

#include <algorithm>

#include "core/check.h"

namespace horner {

StringCopy::StringCopy(const Options& o) : Generated(o), o_(o) {
  o.check("string_copy");
  HORNER_CHECK(
      o.least >= 1 && o.least <= o.M,
      "[string_copy] 1 <= least <= M must hold, got {} and {}",
      o.least,
      o.M
  );
  HORNER_CHECK(
      o.T >= 2 * o.M + 3, "[string_copy] M = {} letters need T = {}, got {}", o.M, 2 * o.M + 3, o.T
  );
  HORNER_CHECK(o.A >= 2, "[string_copy] A must be at least 2, got {}", o.A);
}

void StringCopy::make(Split split, int64_t, Random& random, Example& example) const {
  const int64_t start = o_.A, bar = o_.A + 1, dot = o_.A + 2, padding = o_.A + 3;
  std::fill(example.tokens, example.tokens + o_.T, padding);
  for (int64_t at = 0; at < o_.T;) {
    const int64_t n = o_.least + random.integer(o_.M - o_.least + 1);
    const bool fits = at + 2 * n + 3 <= o_.T;
    std::vector<int64_t> text{start};
    for (int64_t i = 0; i < n; ++i) text.push_back(random.integer(o_.A));
    text.push_back(bar);
    for (int64_t i = 1; i <= n; ++i) text.push_back(text[size_t(i)]);
    text.push_back(dot);
    for (int64_t i = 0; i < int64_t(text.size()) && at + i < o_.T; ++i) {
      example.tokens[at + i] = text[size_t(i)];
      if (fits && i > n && i <= 2 * n + 1) example.targets[at + i] = text[size_t(i) + 1];
    }
    example.slices[0] = n;
    at += int64_t(text.size());
    if (split != Split::train) return;  // one string
  }
}

std::shared_ptr<Task> StringCopy::at_length(int64_t T) const {
  Options options = o_;
  HORNER_CHECK(T >= 5, "[string_copy] a letter twice needs 5 tokens, got {}", T);
  options.T = T;
  options.least = options.M = (T - 3) / 2;
  return std::make_shared<StringCopy>(options);
}

std::vector<Baseline> StringCopy::baselines() const {
  return {{"chance", 1.0 / double(o_.A), "any letter"}};
}

}  // namespace horner
