// Random numbers by index: the numbers of an example depend only on (seed, split, index).
//
//   words of block q = Philox4x32-10 of counter (q, index low, index high, split 65536 + stream),
//                      key (seed low, seed high)
//
// Philox: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Ten rounds of
//   (c0, c1, c2, c3) <- (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0))
// with (k0, k1) += (W0, W1) between rounds.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace horner {

using Words = std::array<uint32_t, 4>;

Words philox(Words counter, uint64_t key);

enum class Split : uint32_t { train, valid, test };
enum class Stream : uint32_t { content, noise, order };

class Random {
 public:
  Random(uint64_t seed, Split split, Stream stream, uint64_t index);

  uint32_t word();
  int64_t integer(int64_t n);  // 0 .. n-1 = (word n) >> 32; 1 <= n <= 2^32
  double uniform();            // (word + 1/2) / 2^32, never 0 or 1
  double normal();             // Box-Muller, cosine first, then sine

  // m of 0 .. n-1 without repetition: for i < m slot i is swapped with slot i + integer(n - i).
  std::vector<int64_t> distinct(int64_t n, int64_t m);

  // m places drawn one after the other without replacement, in proportion to their weights:
  // the m smallest of e_i = -ln uniform() / w_i, in increasing order.
  std::vector<int64_t> race(const std::vector<double>& weights, int64_t m);

 private:
  uint64_t seed_;
  Words counter_;
  Words block_{};
  int used_ = 4;
  double sine_ = 0;
  bool has_sine_ = false;
};

// The order of n examples in an epoch: indices sorted by word 0 of block q = epoch, stream order.
std::vector<int64_t> permutation(uint64_t seed, Split split, uint32_t epoch, int64_t n);

}  // namespace horner
