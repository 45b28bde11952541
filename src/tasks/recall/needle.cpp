#include "tasks/recall/needle.h"

#include <algorithm>
#include <cstdlib>

#include "core/check.h"

namespace horner {
namespace {

constexpr int64_t kNeedle = 1, kQuery = 2;                             // marks
constexpr int64_t kKeys = 16, kValues = 144, kFiller = 272, kN = 512;  // where ids begin, and end
constexpr int64_t kEach = 128;                                         // keys, and values
constexpr int64_t kParts = 4;                                          // values of a needle
constexpr int64_t kLength = 2 + kParts, kTail = 1 + kParts;            // tokens

}  // namespace

Needle::Needle(const Options& o) : Generated(o), o_(o) {
  o.check("needle");
  HORNER_CHECK(o.m >= 1 && o.m <= kEach, "[needle] m must be 1 .. {}, got {}", kEach, o.m);
  HORNER_CHECK(
      o.depth >= -1 && o.depth <= 100, "[needle] depth must be 0 .. 100 or -1, got {}", o.depth
  );
  // A needle closes 2 kLength - 1 places to others: so there is always one left.
  const int64_t least = kTail + (o.m - 1) * (2 * kLength - 1) + kLength;
  HORNER_CHECK(o.T >= least, "[needle] {} needles need T of at least {}, got {}", o.m, least, o.T);
}

TaskShape Needle::shape() const { return {.T = o_.T, .vocabulary = kN}; }

Layout Needle::layout(Split) const { return {.T = o_.T, .slices = {"depth", "length"}}; }

void Needle::make(Split, int64_t, Random& random, Example& example) const {
  const int64_t last = o_.T - kTail - kLength;  // place
  const auto keys = random.distinct(kEach, o_.m);
  std::vector<int64_t> values(static_cast<size_t>(o_.m * kParts)), places;
  for (int64_t& value : values) value = kValues + random.integer(kEach);
  const int64_t depth = o_.depth >= 0 ? o_.depth : 10 * random.integer(11);
  places.push_back((depth * last + 50) / 100);
  while (int64_t(places.size()) < o_.m) {
    const int64_t place = random.integer(last + 1);
    const bool apart = std::all_of(places.begin(), places.end(), [&](int64_t other) {
      return std::abs(other - place) >= kLength;
    });
    if (apart) places.push_back(place);
  }
  for (size_t i = 0; i < places.size(); ++i) {
    int64_t* needle = example.tokens + places[i];
    needle[0] = kNeedle;
    needle[1] = kKeys + keys[i];
    std::copy_n(values.begin() + int64_t(i) * kParts, kParts, needle + 2);
  }
  int64_t* tail = example.tokens + o_.T - kTail;
  tail[0] = kQuery;
  tail[1] = kKeys + keys[0];
  std::copy_n(values.begin(), kParts - 1, tail + 2);
  std::copy_n(values.begin(), kParts, example.targets + o_.T - kParts);
  for (int64_t t = 0; t < o_.T; ++t) {
    if (example.tokens[t] == 0) example.tokens[t] = kFiller + random.integer(kN - kFiller);
  }
  example.slices = {depth, o_.T};
}

std::shared_ptr<Task> Needle::at_length(int64_t T) const {
  Options options = o_;
  options.T = T;
  return std::make_shared<Needle>(options);
}

int64_t Needle::free_running() const { return kParts; }

std::vector<Baseline> Needle::baselines() const {
  return {
      {"chance", 1.0 / kEach, "any value"},
      {"shortcut", 1.0 / double(kParts * o_.m), "any value of the context"}};
}

}  // namespace horner
