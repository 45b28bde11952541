#include "model/sampling.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/random.h"

namespace horner {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// "17:-2.5" -> (17, -2.5)
std::pair<int32_t, float> read_bias(const std::string& text) {
  std::pair<int32_t, float> bias;
  const size_t colon = text.find(':');
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  bool good = colon != text.npos && colon > 0;
  if (good) {
    const auto id = std::from_chars(begin, begin + colon, bias.first);
    const auto value = std::from_chars(begin + colon + 1, end, bias.second);
    good = id.ec == std::errc() && id.ptr == begin + colon && value.ec == std::errc() &&
           value.ptr == end && bias.first >= 0 && !std::isnan(bias.second) &&
           bias.second < std::numeric_limits<float>::infinity();
  }
  HORNER_CHECK(good, "logit_bias must be token id:number, as 17:-2.5, got '{}'", text);
  return bias;
}

void check_options(const SamplingOptions& o) {
  const auto range = [](const char* name, double x, bool inside, const char* rule) {
    HORNER_CHECK(inside, "{} must be {}, got {}", name, rule, x);
  };
  range(
      "temperature", o.temperature, o.temperature >= 0 && std::isfinite(o.temperature), "at least 0"
  );
  range("top_k", double(o.top_k), o.top_k >= 0, "at least 0");
  range("top_p", o.top_p, o.top_p > 0 && o.top_p <= 1, "above 0 and at most 1");
  range("min_p", o.min_p, o.min_p >= 0 && o.min_p <= 1, "in 0 .. 1");
  range(
      "repetition_penalty",
      o.repetition_penalty,
      o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty),
      "above 0"
  );
  range(
      "presence_penalty", o.presence_penalty, std::isfinite(o.presence_penalty), "a finite number"
  );
  range(
      "frequency_penalty",
      o.frequency_penalty,
      std::isfinite(o.frequency_penalty),
      "a finite number"
  );
  range("logprobs", double(o.logprobs), o.logprobs >= -1, "at least -1");
}

double log_sum_exp(std::span<const float> x) {
  const float most = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const float value : x) sum += std::exp(double(value) - double(most));
  return double(most) + std::log(sum);
}

// The larger first; of equals the lower id.
constexpr auto kLarger = [](const auto& a, const auto& b) {
  return a.x != b.x ? a.x > b.x : a.id < b.id;
};

}  // namespace

double sampling_uniform(uint64_t seed, uint64_t position) {
  constexpr uint32_t kSampling = 0x73616d70;  // apart from the counters of core/random's examples
  const Words w = philox({uint32_t(position), uint32_t(position >> 32), 0, kSampling}, seed);
  const uint64_t bits = (uint64_t(w[0]) << 32 | w[1]) >> 11;
  return double(bits) * 0x1p-53;
}

double logprob_of(std::span<const float> logits, int32_t token) {
  const double logprob = double(logits[size_t(token)]) - log_sum_exp(logits);
  if (std::isnan(logprob))
    throw RunError("the model's log-probability of token {} is not a number", token);
  return logprob;
}

std::vector<TokenLogprob> likeliest(std::span<const float> logits, int64_t n) {
  struct Entry {
    float x;
    int32_t id;
  };
  std::vector<Entry> entries(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) entries[i] = {logits[i], int32_t(i)};
  const auto count = std::min<int64_t>(n, int64_t(entries.size()));
  std::partial_sort(entries.begin(), entries.begin() + count, entries.end(), kLarger);
  const double all = log_sum_exp(logits);
  std::vector<TokenLogprob> top;
  for (int64_t i = 0; i < count; ++i)
    top.push_back({entries[size_t(i)].id, double(entries[size_t(i)].x) - all});
  return top;
}

TokenSampler::TokenSampler(const SamplingOptions& options) : o_(options) {
  check_options(o_);
  for (const std::string& text : o_.logit_bias) bias_.push_back(read_bias(text));
}

bool TokenSampler::takes_the_likeliest() const {
  return o_.temperature == 0 && o_.repetition_penalty == 1 && o_.presence_penalty == 0 &&
         o_.frequency_penalty == 0 && bias_.empty() && o_.logprobs < 0;
}

SampledToken TokenSampler::sample(
    std::span<const float> logits,
    std::span<const int32_t> before,
    std::span<const uint64_t> allowed
) {
  penalise(logits, before);
  SampledToken sampled;
  if (o_.temperature == 0) {
    Candidate best{kNever, -1, 1};
    for_possible(allowed, [&](float x, int32_t id) {
      if (x > best.x) best = {x, id, 1};
    });
    sampled.token = best.id;
  } else {
    kept_.clear();
    for_possible(allowed, [&](float x, int32_t id) { kept_.push_back({x, id, 1}); });
    sampled.token = kept_.empty() ? -1 : 0;
  }
  if (sampled.token < 0 && allowed.empty())
    throw RunError("no token is possible: all {} logits are -inf", x_.size());
  if (sampled.token < 0) return sampled;
  if (o_.temperature > 0) {
    keep_top_k();
    const float most = std::min_element(kept_.begin(), kept_.end(), kLarger)->x;
    for (Candidate& c : kept_) {  // x = most is apart, since inf - inf is NaN
      c.weight = c.x == most ? 1 : std::exp((double(c.x) - double(most)) / o_.temperature);
    }
    keep_top_p();
    keep_min_p();
    sampled.token = draw(before.size());
  }
  if (o_.logprobs >= 0) sampled.logprob = logprob_of(logits, sampled.token);
  if (o_.logprobs > 0) sampled.top = likeliest(logits, o_.logprobs);
  return sampled;
}

// f(x, id) for every token that is possible.
template <class F>
void TokenSampler::for_possible(std::span<const uint64_t> allowed, F&& f) const {
  const size_t V = x_.size();
  for (size_t i = 0; i < V; ++i) {
    if (std::isnan(x_[i])) throw RunError("the model's logit of token {} is not a number", i);
    const bool may = allowed.empty() || (i / 64 < allowed.size() && allowed[i / 64] >> i % 64 & 1);
    if (may && x_[i] > kNever) f(x_[i], int32_t(i));
  }
}

// Fills x_.
void TokenSampler::penalise(std::span<const float> logits, std::span<const int32_t> before) {
  const size_t V = logits.size();
  x_.assign(logits.begin(), logits.end());
  if (o_.repetition_penalty != 1) {
    const auto r = float(o_.repetition_penalty);
    occurred_.assign(V, false);
    for (const int32_t id : before) {
      if (id < 0 || size_t(id) >= V || occurred_[size_t(id)]) continue;
      occurred_[size_t(id)] = true;
      float& x = x_[size_t(id)];
      x = x > 0 ? x / r : x * r;
    }
  }
  if (!begin_) begin_ = before.size();
  take_off(before.subspan(std::min(*begin_, before.size())));
  for (const auto& [id, bias] : bias_) {
    HORNER_CHECK(size_t(id) < V, "logit_bias: there is no token {}; the vocabulary has {}", id, V);
    x_[size_t(id)] += bias;
  }
}

void TokenSampler::take_off(std::span<const int32_t> text) {
  const auto presence = float(o_.presence_penalty), frequency = float(o_.frequency_penalty);
  if (presence == 0 && frequency == 0) return;
  occurred_.assign(x_.size(), false);
  for (const int32_t id : text) {
    if (id < 0 || size_t(id) >= x_.size()) continue;
    x_[size_t(id)] -= occurred_[size_t(id)] ? frequency : presence + frequency;
    occurred_[size_t(id)] = true;
  }
}

void TokenSampler::keep_top_k() {
  const auto k = size_t(o_.top_k);
  if (k == 0 || k >= kept_.size()) return;
  std::nth_element(kept_.begin(), kept_.begin() + int64_t(k - 1), kept_.end(), kLarger);
  kept_.resize(k);
}

// Sorts as many of the largest as the share needs, in growing pieces.
void TokenSampler::keep_top_p() {
  if (o_.top_p >= 1) return;
  double total = 0, sum = 0;
  for (const Candidate& c : kept_) total += c.weight;
  size_t sorted = 0;
  for (size_t n = 64; sorted < kept_.size(); n *= 4) {
    const size_t end = std::min(n, kept_.size());
    const auto first = kept_.begin() + int64_t(sorted), last = kept_.begin() + int64_t(end);
    if (last != kept_.end()) std::nth_element(first, last - 1, kept_.end(), kLarger);
    std::sort(first, last, kLarger);
    for (; sorted < end; ++sorted) {
      sum += kept_[sorted].weight;
      if (sum >= o_.top_p * total) return kept_.resize(sorted + 1);
    }
  }
}

void TokenSampler::keep_min_p() {
  if (o_.min_p <= 0) return;
  std::erase_if(kept_, [&](const Candidate& c) { return c.weight < o_.min_p; });
}

int32_t TokenSampler::draw(uint64_t position) {
  if (o_.top_k > 0 || o_.top_p < 1) {
    std::sort(kept_.begin(), kept_.end(), [](const Candidate& a, const Candidate& b) {
      return a.id < b.id;
    });
  }
  double total = 0;
  for (const Candidate& c : kept_) total += c.weight;
  const double target = sampling_uniform(uint64_t(o_.seed), position) * total;
  double sum = 0;
  int32_t last = kept_.front().id;
  for (const Candidate& c : kept_) {
    if (c.weight > 0) last = c.id;
    sum += c.weight;
    if (sum > target) return c.id;
  }
  return last;  // the sum was rounded down
}

}  // namespace horner
