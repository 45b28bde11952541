// Products of one warp (mma.sync, bf16, fp32 sums), which any GPU from sm_80 on has, and what feeds them.
//
// m16n8k16, lane l with r = l / 4, i = l % 4:
//   d += a b^T   a[0], a[1]: rows r, r + 8, k = 2 i, 2 i + 1;  a[2], a[3]: the same, k + 8
//                b0, b1: row r (a column of d), k = 2 i, 2 i + 1, and k + 8
//                d[0], d[1]: row r, columns 2 i, 2 i + 1;  d[2], d[3]: row r + 8
// So rows held as an A operand are B operands too: of rows r they are (a[0], a[2]), of r + 8 (a[1], a[3]).
#pragma once

#include <cstdint>

#include "cuda/sm90.cuh"

namespace horner::cuda {

__device__ inline void multiply(
    float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1
) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1)
  );
}
__device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply(d, a[0], a[1], a[2], a[3], b0, b1);
}

// The sum over the four lanes of a row of d.
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// Both halves of two pairs, each product rounded once.
__device__ inline uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  uint32_t both;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
  return both;
}

// One half of a pair, twice.
__device__ inline uint32_t splat_half(uint32_t pair, bool high) {
  uint32_t both;
  asm("prmt.b32 %0, %1, %1, %2;" : "=r"(both) : "r"(pair), "r"(high ? 0x3232 : 0x1010));
  return both;
}

// Two 8x8 matrices; lanes 0 .. 15 give the addresses of their rows.
__device__ inline void load_two_matrices(uint32_t (&a)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(a[0]), "=r"(a[1])
               : "r"(address)
               : "memory");
}

// An 8x8 matrix of which each lane holds two elements of a row: transposed.
__device__ inline uint32_t transposed(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// x, hidden from the compiler: what is made of it in a loop is made anew and not kept in registers.
__device__ inline int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

__device__ inline void prefetch(const void* p) {  // 128 bytes into the L2 cache
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

}  // namespace horner::cuda
