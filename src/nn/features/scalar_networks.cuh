// Parameters of the kernels of the scalar networks (scalar_networks.h has the equations).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "nn/fused/functions.h"

namespace horner::cuda {

// y_r(u) is a straight line between two kinks u = -b1 / f1. All R E kinks in order cut the numbers u into R E + 1 pieces.
// Functions are counted up to a power of 2, so that a row of the tables belongs to neighbouring lanes.
struct NetworkShape {
  static constexpr int kGroup = 64;  // hidden units whose sums a thread of the backward keeps

  int R = 0, E = 0;
  int units, wide, levels, groups, rows;

  NetworkShape() = default;
  NetworkShape(int functions, int hidden)
      : R(functions),
        E(hidden),
        units(R * E),
        wide(1),
        levels(1),
        groups((E + kGroup - 1) / kGroup) {
    while (wide < R) wide *= 2;
    while ((1 << levels) <= units) ++levels;
    rows = (E < kGroup ? E : kGroup) + 1;
  }
  // In 16 bytes each: tree, anchors, lines, pieces of each group, units.
  HORNER_BOTH static int64_t whole(int64_t bytes) { return (bytes + 15) / 16 * 16; }
  HORNER_BOTH int64_t tree() const { return whole(4 * (int64_t(1) << levels)); }
  HORNER_BOTH int64_t anchors() const { return whole(4 * int64_t(units + 1)); }
  HORNER_BOTH int64_t lines() const { return whole(8 * int64_t(units + 1) * wide); }
  HORNER_BOTH int64_t places() const { return whole(int64_t(units + 1) * wide); }
  HORNER_BOTH int64_t bytes() const {
    return tree() + anchors() + lines() + groups * places() + whole(4 * int64_t(units));
  }
};

// What the kernels look up. Piece i has the numbers u with i kinks below u.
struct NetworkTables {
  float* tree;            // (2^levels): kinks in the order of a binary search, from 1 on
  float* anchors;         // (pieces): a number of the piece
  float2* lines;          // (pieces,wide): slope, and the value at the anchor
  unsigned char* places;  // (groups,pieces,wide): which piece it is of the group's kinks alone
  int* ranks;  // (R,E): the unit works from place rank + 1 on; negative: up to place -1 - rank

  __device__ NetworkTables(const NetworkShape& s, void* memory) {
    auto* at = static_cast<unsigned char*>(memory);
    tree = reinterpret_cast<float*>(at);
    anchors = reinterpret_cast<float*>(at += s.tree());
    lines = reinterpret_cast<float2*>(at += s.anchors());
    places = at += s.lines();
    ranks = reinterpret_cast<int*>(at += s.groups * s.places());
  }
};

struct ScalarNetworks {
  int64_t n;
  NetworkShape shape;
  bool bf16;      // u, y, dy and du; otherwise fp32
  bool positive;  // y is at least 0
  float scale;
  int M;  // numbers of shift, a divisor of 32
  const void* u;
  const float *shift, *f1, *b1, *f2, *b2;
  void* tables;              // shape.bytes()
  void* y = nullptr;         // (n,R)
  const void* dy = nullptr;  // (n,R)
  void* du = nullptr;
  int parts = 0;                 // blocks of the backward for each group
  float2* sums = nullptr;        // (parts,groups,R,rows): of dy and of dy u
  float* shift_sums = nullptr;   // (parts,32): of du
  float *df1, *db1, *df2, *db2;  // (R,E) three times, (R)
  float* dshift;                 // (M)
};

int network_parts(const ScalarNetworks&);
cudaError_t networks_tables(const ScalarNetworks&, cudaStream_t);
cudaError_t networks_forward(const ScalarNetworks&, cudaStream_t);
cudaError_t networks_backward(const ScalarNetworks&, cudaStream_t);   // du and the sums
cudaError_t networks_gradients(const ScalarNetworks&, cudaStream_t);  // from the sums

}  // namespace horner::cuda
