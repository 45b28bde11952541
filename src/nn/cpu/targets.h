// Code that is compiled once per set of instructions. A .cpp includes this header, and then, inside one namespace per target,
// TARGET.inc followed by its own loops (PRODUCT.inc, ..): see nn/quantised/product.cpp.
//
//   TARGET.inc defines     what
//   HORNER_TARGET          the attribute of every function of that target
//   kTokens                tokens whose sums fit into the registers beside a block of weights
//   kSums                  sums of 16 lanes that fit into the registers
//   load_half(x)           16 halves as fp32
//   store_half(x, y)       y, at most 65504 in size, as halves
//   dot(sum, w, x)         sum_i + w_4i x_0 + .. + w_4i+3 x_3 for 16 lanes i, w of 8 bits without a sign, x four int8
#pragma once

#include <cpuid.h>
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "ops/attention/vectors.h"

namespace horner {

using Bytes = vectors::Of<uint32_t>::Type;  // 64 bytes; as words, so that they shift by words

enum class Target { plain, avx2, avx512 };
inline constexpr Target kTargets[] = {Target::plain, Target::avx2, Target::avx512};

inline bool has_f16c() {  // clang 14 has no name for it
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
inline bool has(Target target) {
  switch (target) {
    case Target::plain: return true;
    case Target::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case Target::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vnni");
  }
  return false;
}
inline Target best_target() {
  static const Target best = has(Target::avx512) ? Target::avx512
                             : has(Target::avx2) ? Target::avx2
                                                 : Target::plain;
  return best;
}
inline const char* name_of(Target target) {
  return target == Target::avx512 ? "avx512-vnni" : target == Target::avx2 ? "avx2" : "plain";
}

}  // namespace horner
