// Hopper instructions, as thin functions: asynchronous copies, ldmatrix, warpgroup matrix products.
//
// A tile is 64 rows of 64 bf16 (128 bytes), 1024-byte aligned, its 16-byte units swizzled: unit c of row r
// lies at unit c ^ (r % 8). That is the 128-byte swizzle of wgmma, and free of bank conflicts.
// Accumulators of a 64 x 64 product: warp w of the group has rows 16 w .. 16 w + 15; element 4 j + e of lane l
// is row 16 w + l / 4 + 8 (e / 2), column 8 j + 2 (l % 4) + e % 2. An A operand in registers is the same
// layout, rounded to pairs.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace horner::cuda {

constexpr int kTileBytes = 64 * 128;

__device__ inline uint32_t shared_address(const void* p) {
  return uint32_t(__cvta_generic_to_shared(p));
}

__device__ inline uint32_t tile_offset(int row, int unit) {
  return uint32_t(row * 128 + ((unit ^ (row & 7)) << 4));
}

__device__ inline float exp2_fast(float x) {  // 0 for x <= -127
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline uint32_t pack(float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

__device__ inline float low_half(uint32_t both) { return __uint_as_float(both << 16); }
__device__ inline float high_half(uint32_t both) { return __uint_as_float(both & 0xffff0000u); }

// 16 bytes from global to shared memory; zeros where !valid.
__device__ inline void copy_async(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
// One number of 4 bytes, likewise.
__device__ inline void copy_number_async(float* to, const float* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
               "l"(from),
               "r"(valid ? 4 : 0)
               : "memory");
}
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ inline void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Makes ordinary writes to shared memory visible to wgmma; a barrier must follow.
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Four 8x8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(uint32_t (&a)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address)
               : "memory");
}
// The same, each transposed.
__device__ inline void load_matrices_transposed(uint32_t (&a)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address)
               : "memory");
}

// Both halves times a weight that is a sum of two bf16, rounded once.
__device__ inline uint32_t weigh_pairs(uint32_t x, uint2 weight) {
  uint32_t both;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(both) : "r"(x), "r"(weight.y));
  asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(both) : "r"(x), "r"(weight.x));
  return both;
}
__device__ inline uint2 weight_pair(float2 w) {
  const uint32_t high = pack(w.x, w.y);
  return {high, pack(w.x - low_half(high), w.y - high_half(high))};
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

// A barrier in shared memory that opens when `count` threads have arrived and the bytes they expect are there.
__device__ inline void barrier_init(uint32_t barrier, int count = 1) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline void barrier_wait(uint32_t barrier, int parity) {
  asm volatile(
      "{.reg .pred p;\n"
      "HORNER_AGAIN_%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra HORNER_AGAIN_%=;}" ::"r"(barrier),
      "r"(parity)
      : "memory"
  );
}

// A tile from a tensor (B,T,heads,width) whose map has that box; zeros outside the tensor.
__device__ inline void load_tile(
    uint32_t to, const CUtensorMap* map, uint32_t barrier, int column, int head, int t, int b
) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map),
      "r"(barrier),
      "r"(column),
      "r"(head),
      "r"(t),
      "r"(b)
      : "memory"
  );
}

// Four 8x8 matrices of bf16 pairs in the accumulators' layout; addresses as above.
__device__ inline void store_matrices(
    uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d
) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(a),
               "r"(b),
               "r"(c),
               "r"(d)
               : "memory");
}

// A tile in shared memory as an operand, groups of 8 rows 1024 bytes apart. Read along its rows (K-major), a
// step of 16 is 32 bytes; read transposed (the rows are the summed index), it is 2048 bytes.
__device__ inline uint64_t operand(uint32_t address) {
  return uint64_t((address & 0x3ffff) >> 4) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 |
         uint64_t(1) << 62;
}

// A warpgroup gives registers back or takes more; all of a block's start with an equal share.
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

__device__ inline void product_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void product_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ inline void product_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// The compiler must not touch accumulators before the wait: stand between.
template <int kCount>
__device__ inline void fence_registers(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define HORNER_ACCUMULATORS                                                                     \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24," \
  "%25,%26,%27,%28,%29,%30,%31}"
#define HORNER_BIND(d)                                                                            \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
      "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
      "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),  \
      "+f"(d[29]), "+f"(d[30]), "+f"(d[31])

// d = a b^T + (add ? d : 0), 64 x 64 x 16, both from shared memory, either read transposed.
template <bool kTransposeA, bool kTransposeB>
__device__ inline void product(float (&d)[32], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " HORNER_ACCUMULATORS
      ", %32, %33, p, 1, 1, %35, %36;}"
      : HORNER_BIND(d)
      : "l"(a), "l"(b), "r"(int(add)), "n"(int(kTransposeA)), "n"(int(kTransposeB))
  );
}

// The same with a in registers.
template <bool kTransposeB>
__device__ inline void product(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " HORNER_ACCUMULATORS
      ", {%32,%33,%34,%35}, %36, p, 1, 1, %38;}"
      : HORNER_BIND(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)), "n"(int(kTransposeB))
  );
}

// The same 64 x 32 x 16: b has 32 rows, or columns where it is read transposed.
#define HORNER_HALF "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
#define HORNER_BIND_HALF(d)                                                                       \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
      "+f"(d[15])
template <bool kTransposeA, bool kTransposeB>
__device__ inline void product(float (&d)[16], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " HORNER_HALF
      ", %16, %17, p, 1, 1, %19, %20;}"
      : HORNER_BIND_HALF(d)
      : "l"(a), "l"(b), "r"(int(add)), "n"(int(kTransposeA)), "n"(int(kTransposeB))
  );
}
template <bool kTransposeB>
__device__ inline void product(float (&d)[16], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " HORNER_HALF
      ", {%16,%17,%18,%19}, %20, p, 1, 1, %22;}"
      : HORNER_BIND_HALF(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)), "n"(int(kTransposeB))
  );
}

#undef HORNER_HALF
#undef HORNER_BIND_HALF
#undef HORNER_ACCUMULATORS
#undef HORNER_BIND
#endif

}  // namespace horner::cuda
