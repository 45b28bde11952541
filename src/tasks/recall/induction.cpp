#include "tasks/recall/induction.h"

#include <algorithm>

#include "core/check.h"

namespace horner {

Induction::Induction(const Options& o) : Generated(o), o_(o) {
  o.check("induction");
  HORNER_CHECK(o.T >= 3, "[induction] T must be at least 3, got {}", o.T);
  HORNER_CHECK(o.N >= 3, "[induction] N must be at least 3, got {}", o.N);
}

TaskShape Induction::shape() const { return {.T = o_.T, .vocabulary = o_.N}; }

Layout Induction::layout(Split) const { return {.T = o_.T, .slices = {"length"}}; }

void Induction::make(Split, int64_t, Random& random, Example& example) const {
  const int64_t p = random.integer(o_.T - 2);
  for (int64_t t = 0; t < o_.T; ++t) {
    example.tokens[t] = t == p || t == o_.T - 1 ? o_.N - 1 : random.integer(o_.N - 1);
  }
  example.targets[o_.T - 1] = example.tokens[p + 1];
  example.slices[0] = o_.T;
}

std::shared_ptr<Task> Induction::at_length(int64_t T) const {
  Options options = o_;
  options.T = T;
  return std::make_shared<Induction>(options);
}

std::vector<Baseline> Induction::baselines() const {
  // The context's most frequent id: only its share of the target's id counts.
  const double most = mean_score(test_sample(*this), [&](const auto& targets, const auto& tokens) {
    std::vector<int64_t> count(static_cast<size_t>(o_.N - 1));
    for (const int64_t token : tokens) {
      if (token != o_.N - 1) ++count[size_t(token)];
    }
    const auto top = std::max_element(count.begin(), count.end());
    return double(top - count.begin() == targets.at(0));
  });
  return {
      {"chance", 1.0 / double(o_.N - 1), "any ordinary id"},
      {"shortcut", most, "the most frequent id of the context"}};
}

}  // namespace horner
