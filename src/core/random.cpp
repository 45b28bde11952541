#include "core/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <unordered_map>

#include "core/check.h"
#include "core/interrupt.h"

namespace horner {
namespace {

constexpr uint32_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57;  // multipliers
constexpr uint32_t kW0 = 0x9E3779B9, kW1 = 0xBB67AE85;  // golden ratio, sqrt(3) - 1

Words counter_of(uint32_t block, Split split, Stream stream, uint64_t index) {
  return {
      block,
      static_cast<uint32_t>(index),
      static_cast<uint32_t>(index >> 32),
      static_cast<uint32_t>(split) * 65536 + static_cast<uint32_t>(stream)};
}

// 0 .. n-1 in increasing order of key; equal keys in order of index.
template <class T>
std::vector<int64_t> sorted_by(const std::vector<T>& key, int64_t m) {
  std::vector<int64_t> order(key.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::partial_sort(order.begin(), order.begin() + m, order.end(), [&](int64_t a, int64_t b) {
    return key[a] != key[b] ? key[a] < key[b] : a < b;
  });
  order.resize(m);
  return order;
}

}  // namespace

Words philox(Words c, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += kW0, k1 += kW1) {
    const uint64_t p0 = uint64_t{kM0} * c[0], p1 = uint64_t{kM1} * c[2];
    c = {
        static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0,
        static_cast<uint32_t>(p1),
        static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1,
        static_cast<uint32_t>(p0)};
  }
  return c;
}

Random::Random(uint64_t seed, Split split, Stream stream, uint64_t index)
    : seed_(seed), counter_(counter_of(0, split, stream, index)) {}

uint32_t Random::word() {
  if (used_ == 4) {
    block_ = philox(counter_, seed_);
    ++counter_[0];
    used_ = 0;
  }
  return block_[used_++];
}

int64_t Random::integer(int64_t n) {
  HORNER_CHECK(n >= 1 && n <= int64_t{1} << 32, "[random] n must be 1 .. 2^32, got {}", n);
  return static_cast<int64_t>(uint64_t{word()} * static_cast<uint64_t>(n) >> 32);
}

double Random::uniform() { return (word() + 0.5) * 0x1p-32; }

double Random::normal() {
  if (has_sine_) {
    has_sine_ = false;
    return sine_;
  }
  const double radius = std::sqrt(-2 * std::log(uniform()));
  const double angle = 2 * std::numbers::pi * uniform();
  sine_ = radius * std::sin(angle);
  has_sine_ = true;
  return radius * std::cos(angle);
}

std::vector<int64_t> Random::distinct(int64_t n, int64_t m) {
  HORNER_CHECK(m >= 0 && m <= n, "[random] cannot draw {} distinct numbers of {}", m, n);
  std::unordered_map<int64_t, int64_t> moved;  // slot -> number, where they differ
  const auto at = [&](int64_t slot) {
    const auto found = moved.find(slot);
    return found == moved.end() ? slot : found->second;
  };
  std::vector<int64_t> drawn(m);
  for (int64_t i = 0; i < m; ++i) {
    const int64_t j = i + integer(n - i);
    drawn[i] = at(j);
    moved[j] = at(i);  // slot i is not read again
  }
  return drawn;
}

std::vector<int64_t> Random::race(const std::vector<double>& weights, int64_t m) {
  const int64_t n = static_cast<int64_t>(weights.size());
  HORNER_CHECK(m >= 0 && m <= n, "[random] cannot draw {} places of {}", m, n);
  std::vector<double> e(n);
  for (int64_t i = 0; i < n; ++i) e[i] = -std::log(uniform()) / weights[i];  // e_i = -ln u / w_i
  return sorted_by(e, m);
}

// The highest bits of a key choose a bucket, and each bucket is sorted by itself: it fits into a cache, and Ctrl-C is heard
// between two of them.
std::vector<int64_t> permutation(uint64_t seed, Split split, uint32_t epoch, int64_t n) {
  constexpr int64_t kBucket = 4096, kAsk = 1 << 18;
  HORNER_CHECK(n >= 0 && n <= int64_t{1} << 32, "[random] n must be 0 .. 2^32, got {}", n);
  const auto ask = [](int64_t i) {
    if (i % kAsk == 0) stop_if_alone("examples were put in order");
  };
  const int bits = std::clamp(int(std::bit_width(uint64_t(n / kBucket))), 1, 20);
  std::vector<uint32_t> key(n);
  std::vector<int64_t> end(size_t{1} << bits), order(n);
  for (int64_t i = 0; i < n; ++i) {
    ask(i);
    key[i] = philox(counter_of(epoch, split, Stream::order, i), seed)[0];
    ++end[key[i] >> (32 - bits)];
  }
  std::exclusive_scan(end.begin(), end.end(), end.begin(), int64_t{0});
  for (int64_t i = 0; i < n; ++i) {
    ask(i);
    order[end[key[i] >> (32 - bits)]++] = int64_t(uint64_t{key[i]} << 32 | uint64_t(i));
  }
  int64_t begin = 0;
  for (const int64_t stop : end) {
    if (begin / kAsk != stop / kAsk) ask(0);
    std::sort(order.begin() + begin, order.begin() + stop, [](int64_t a, int64_t b) {
      return uint64_t(a) < uint64_t(b);
    });
    begin = stop;
  }
  for (int64_t& number : order) number &= 0xFFFFFFFF;
  return order;
}

}  // namespace horner
