#include "tasks/recall/copy.h"

#include <algorithm>

#include "core/check.h"

namespace horner {

Copy::Copy(const Options& o, bool selective) : Generated(o), o_(o), selective_(selective) {
  o.check("copy");
  HORNER_CHECK(o.G >= 0 && o.M >= 1, "[copy] needs G >= 0 and M >= 1, got {} and {}", o.G, o.M);
  HORNER_CHECK(
      o.least >= 0 && o.least <= o.M, "[copy] least must be 0 .. M = {}, got {}", o.M, o.least
  );
  HORNER_CHECK(o.A >= 4, "[copy] A must be at least 4: a blank, two data, a marker, got {}", o.A);
}

TaskShape Copy::shape() const { return {.T = o_.G + 2 * o_.M, .vocabulary = o_.A}; }

Layout Copy::layout(Split) const { return {.T = o_.G + 2 * o_.M, .slices = {"length"}}; }

void Copy::make(Split, int64_t, Random& random, Example& example) const {
  const int64_t M = o_.least > 0 ? o_.least + random.integer(o_.M - o_.least + 1) : o_.M;
  const int64_t ask = o_.G + M;  // where the markers begin
  for (int64_t i = 0; i < M; ++i) {
    example.tokens[ask + i] = o_.A - 1;
    example.targets[ask + i] = 1 + random.integer(o_.A - 2);
  }
  std::vector<int64_t> places(static_cast<size_t>(M));
  for (size_t i = 0; i < places.size(); ++i) places[i] = int64_t(i);
  if (selective_) {
    places = random.distinct(ask, M);
    std::sort(places.begin(), places.end());
  }
  for (size_t i = 0; i < places.size(); ++i) {
    example.tokens[places[i]] = example.targets[size_t(ask) + i];
  }
  example.slices[0] = ask + M;
}

std::shared_ptr<Task> Copy::at_length(int64_t T) const {
  Options options = o_;
  if (o_.least > 0) {
    options.M = options.least = (T - o_.G) / 2;
    HORNER_CHECK(
        options.M >= 1 && T == o_.G + 2 * options.M,
        "[copy] a length is {} blanks and twice a number of tokens, got {}",
        o_.G,
        T
    );
    return std::make_shared<Copy>(options, selective_);
  }
  HORNER_CHECK(
      T >= 2 * o_.M, "[copy] {} data tokens need a length of {}, got {}", o_.M, 2 * o_.M, T
  );
  options.G = T - 2 * o_.M;
  return std::make_shared<Copy>(options, selective_);
}

std::vector<Baseline> Copy::baselines() const {
  const double most = mean_score(test_sample(*this), [](const auto& targets, const auto&) {
    return share_of_most_frequent(targets);
  });
  return {
      {"chance", 1.0 / double(o_.A - 2), "any data id"},
      {"shortcut", most, "the most frequent data id of the context"}};
}

}  // namespace horner
