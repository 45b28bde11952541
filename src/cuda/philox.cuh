// Philox4x32-10 on a GPU: the words of core/random.h, each by its number.
#pragma once

#include <cstdint>

namespace horner::cuda {

// The words of one stream of one example; word(i) is what the (i+1)-th call of Random::word() returns.
struct Philox {
  uint64_t seed, index;
  uint32_t stream;  // split 65536 + stream

  __device__ uint32_t word(uint32_t i) const {
    constexpr uint32_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57, kW0 = 0x9E3779B9, kW1 = 0xBB67AE85;
    uint32_t c[4] = {i / 4, uint32_t(index), uint32_t(index >> 32), stream};
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += kW0, k1 += kW1) {
      const uint32_t high0 = __umulhi(kM0, c[0]), low0 = kM0 * c[0];
      const uint32_t high1 = __umulhi(kM1, c[2]), low1 = kM1 * c[2];
      c[0] = high1 ^ c[1] ^ k0;
      c[1] = low1;
      c[2] = high0 ^ c[3] ^ k1;
      c[3] = low0;
    }
    return i % 4 < 2 ? (i % 2 == 0 ? c[0] : c[1]) : (i % 2 == 0 ? c[2] : c[3]);
  }
  __device__ uint32_t integer(uint32_t i, uint32_t n) const {  // 0 .. n-1
    return uint32_t(uint64_t(word(i)) * n >> 32);
  }
  __device__ double uniform(uint32_t i) const { return (word(i) + 0.5) * 0x1p-32; }
};

}  // namespace horner::cuda
