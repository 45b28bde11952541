#include "tasks/tracking/parity.h"

#include "core/check.h"

namespace horner {

Parity::Parity(const Options& o, bool every) : Generated(o), o_(o), every_(every) {
  o.check("parity", 1);
}

TaskShape Parity::shape() const {
  return {.T = std::max(o_.longest, o_.test_longest), .vocabulary = 3};
}

Layout Parity::layout(Split split) const {
  return {.T = o_.high(split), .lengths = true, .slices = {"length"}};
}

void Parity::make(Split split, int64_t, Random& random, Example& example) const {
  const int64_t low = o_.low(split), high = o_.high(split);
  example.length = example.slices[0] = low + random.integer(high - low + 1);
  int64_t parity = 0;
  for (int64_t t = 0; t < example.length; ++t) {
    const int64_t bit = random.integer(2);
    parity ^= bit;
    example.tokens[t] = 1 + bit;
    if (every_ || t == example.length - 1) example.targets[t] = 1 + parity;
  }
}

std::shared_ptr<Task> Parity::at_length(int64_t T) const {
  Options options = o_;
  options.test_shortest = options.test_longest = T;
  return std::make_shared<Parity>(options, every_);
}

std::vector<Baseline> Parity::baselines() const {
  std::vector<Baseline> list = {{"chance", 0.5, "either parity"}};
  if (!every_) return list;
  double right = 0;
  const int64_t low = o_.test_shortest, high = o_.test_longest;
  for (int64_t T = low; T <= high; ++T) right += (1 + 0.5 * double(T - 1)) / double(T);
  list.push_back({"shortcut", right / double(high - low + 1), "each token as if it were the first"}
  );
  return list;
}

}  // namespace horner
