// What the concept page shows, measured: how many pairs a state holds.
//
//   n random pairs (k, v) of unit vectors are read, then every key is asked for; the answer is right if the output points to its
//   own value more than to any other of the n.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace horner {

struct Capacity {
  std::string name;                               // of the op, with its order
  int64_t numbers = 0;                            // of the state; 0: it grows with the pairs
  std::vector<std::pair<int64_t, double>> right;  // pairs, share of right answers
};

constexpr int64_t kCapacityDim = 16;  // K = V

// Means over `repeats` draws.
std::vector<Capacity> measure_capacity(int64_t repeats, uint64_t seed);

}  // namespace horner
