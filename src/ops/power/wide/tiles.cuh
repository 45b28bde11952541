// What the kernels for wide keys share (wide.cuh): 16 rows of a state, tiles of shared memory.
#pragma once

#include "cuda/mma.cuh"
#include "ops/power/wide/wide.cuh"

namespace horner::cuda {
namespace {

// 16 rows of a state.
struct WideRows {
  enum Kind { pairs, single, constant, none } kind = none;
  int first = 0, turn = 0, K;  // x_j x_{j+turn}, or x_j, from j = first on

  __device__ WideRows(int block, int K) : K(K) {
    const int tile = block / (K / 16), rest = block % (K / 16);
    if (tile <= K / 2 + 1) {
      kind = tile <= K / 2 ? pairs : single;
      first = 16 * rest;
      turn = tile;
    } else if (rest == 0 && tile == K / 2 + 2) {
      kind = constant;
    }
  }
  __device__ float weight(float c0, float c1, float c2) const {
    if (kind == pairs) return turn % (K / 2) == 0 ? c2 : 2.f * c2;
    return kind == single ? c1 : kind == constant ? c0 : 0.f;
  }
};

// Rows of kWidth bf16. The stride is an odd number of 16-byte units, so eight rows lie in different banks.
template <int kRows, int kWidth>
struct WideTile {
  static constexpr int kStride = 2 * kWidth + (kWidth % 16 == 0 ? 16 : 0);  // bytes
  __align__(16) unsigned char bytes[kRows * kStride];

  __device__ uint32_t at(int row, int column) const {
    return shared_address(bytes) + uint32_t(row * kStride + 2 * column);
  }
  __device__ uint32_t& pair(int row, int column) {
    return *reinterpret_cast<uint32_t*>(bytes + row * kStride + 2 * column);
  }
  // Starts the copies of tokens `from` .. of head h; zeros from `end` on; columns from `column` on.
  template <int kThreads>
  __device__ void fetch(
      const Rows& x, int64_t b, int64_t h, int64_t from, int64_t end, int column
  ) {
    const auto* rows = static_cast<const uint16_t*>(x.data) + b * x.b + h / x.group * x.h + column;
#pragma unroll 1
    for (int e = int(threadIdx.x); e < kRows * (kWidth / 8); e += kThreads) {
      const int row = e / (kWidth / 8), unit = e % (kWidth / 8);
      const bool valid = from + row < end;
      copy_async(at(row, 8 * unit), rows + (valid ? from + row : 0) * x.t + 8 * unit, valid);
    }
  }
};

// B operands of 16 rows and all columns of a tile; the product sums over the rows.
template <int kCount, int kRows>
__device__ void load_columns(
    uint32_t (&v)[kCount][2], const WideTile<kRows, kWideColumns>& tile, int row, int lane
) {
  static_assert(kCount == kWideColumns / 8 + 1);
#pragma unroll
  for (int c = 0; c < kCount; c += 2) {
    uint32_t four[4];
    const int column = 8 * c + lane / 16 * 8;
    load_matrices_transposed(
        four, tile.at(row + lane % 16, column < kWideColumns ? column : 8 * c)
    );
    v[c][0] = four[0], v[c][1] = four[1];
    v[c + 1][0] = four[2], v[c + 1][1] = four[3];
  }
}

// Tokens of x, and the same rotated by one: so a pair of neighbours can be read from any index.
template <int kK, int kTokens>
struct WideNeighbours {
  WideTile<kTokens, kK> even, odd;  // odd: x_{j+1} at place j

  template <int kThreads>
  __device__ void turn() {  // fills odd, after even has arrived
#pragma unroll 4
    for (int e = int(threadIdx.x); e < kTokens * kK / 2; e += kThreads) {
      const int row = e / (kK / 2), j = e % (kK / 2) * 2;
      const uint32_t own = even.pair(row, j), next = even.pair(row, (j + 2) % kK);
      odd.pair(row, j) = own >> 16 | next << 16;
    }
  }
  struct Turned {
    const unsigned char* bytes;
    int by;                                           // even
    __device__ uint32_t pair(int row, int j) const {  // x_{j+by}, x_{j+by+1}, j even
      return *reinterpret_cast<const uint32_t*>(
          bytes + row * WideTile<kTokens, kK>::kStride + 2 * ((j + by) & (kK - 1))
      );
    }
  };
  __device__ Turned turned(int by) const { return {(by & 1) ? odd.bytes : even.bytes, by & ~1}; }
};

// Which tokens of which head a block owns, and which state it uses.
struct WideJob {
  int b, h, from, end;  // first token of the block; end of its chunk
  const uint16_t* S;

  __device__ WideJob(const PowerWide& p, int64_t job, int tokens) {
    const int parts = p.length / tokens, part = int(job % parts);
    job /= parts;
    const int chunk = int(job % p.chunks);
    job /= p.chunks;
    h = int(job % p.H);
    b = int(job / p.H);
    from = chunk * p.length + tokens * part;
    end = min(int(p.T), (chunk + 1) * p.length);
    const int64_t state = (int64_t(b) * p.chunks + chunk) * (p.H / p.group) + h / p.group;
    S = static_cast<const uint16_t*>(p.S) + state * wide_rows(p.K) * p.blocks * kWideColumns;
  }
  __host__ static int64_t count(const PowerWide& p, int tokens) {
    return p.B * p.H * p.chunks * (p.length / tokens);
  }
};

// Starts the copies of kRows rows of a state, one block of columns.
template <int kThreads, int kRows, int kWidth>
__device__ void fetch_state(
    WideTile<kRows, kWidth>& to, const PowerWide& p, const uint16_t* S, int row, int block
) {
  const int columns = p.blocks * kWideColumns;
  S += int64_t(row) * columns + block * kWideColumns;
#pragma unroll 1
  for (int e = int(threadIdx.x); e < kRows * (kWideColumns / 8); e += kThreads) {
    const int r = e / (kWideColumns / 8), unit = e % (kWideColumns / 8);
    copy_async(to.at(r, 8 * unit), S + int64_t(r) * columns + 8 * unit, true);
  }
}

}  // namespace
}  // namespace horner::cuda
