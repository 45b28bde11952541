// Products of a warp (mma.sync), and bf16 pairs. Operands of d (16 x 8) += a (16 x 16) b (16 x 8), lane l,
// g = l / 4, t = l % 4; a pair is two neighbouring columns of a, or two neighbouring rows of b:
//   a[0] row g, columns 2t    a[1] row g + 8, columns 2t    a[2], a[3] the same rows, columns 2t + 8
//   b[0] rows 2t, column g    b[1] rows 2t + 8
//   d[0], d[1] row g, columns 2t, 2t + 1                    d[2], d[3] row g + 8
// So two neighbouring tiles of d, rounded to pairs, are an operand a.
#pragma once

#include "cuda/sm90.cuh"

namespace horner::cuda {

__device__ inline void multiply_add(
    float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1
) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)
  );
}

// Both halves, each product rounded once.
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

// x, hidden from the compiler.
__device__ inline int hidden(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Two 8x8 matrices; lanes 0 .. 15 give the addresses of their rows.
__device__ inline void load_two_matrices(uint32_t (&a)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(a[0]), "=r"(a[1])
               : "r"(address)
               : "memory");
}

}  // namespace horner::cuda
