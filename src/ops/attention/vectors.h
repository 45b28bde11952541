// Sixteen numbers at a time. Everything is inlined into the caller and uses the registers of the
// caller's target.
#pragma once

#include <c10/util/BFloat16.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#pragma GCC diagnostic ignored "-Wpsabi"  // functions of vectors are inlined: none has an ABI

namespace horner::vectors {

#define HORNER_INLINE [[gnu::always_inline]] inline

constexpr int64_t kLanes = 16;

template <class A>
struct Of {
  typedef A Type __attribute__((vector_size(kLanes * sizeof(A))));
};
template <class A>
using Vector = typename Of<A>::Type;

HORNER_INLINE Vector<float> load(const float* x) {
  Vector<float> y;
  std::memcpy(&y, x, sizeof y);
  return y;
}
HORNER_INLINE Vector<double> load(const double* x) {
  Vector<double> y;
  std::memcpy(&y, x, sizeof y);
  return y;
}
HORNER_INLINE Vector<float> load(const c10::BFloat16* x) {
  Vector<uint16_t> bits;
  std::memcpy(&bits, x, sizeof bits);
  const Vector<uint32_t> shifted = __builtin_convertvector(bits, Vector<uint32_t>) << 16;
  Vector<float> y;
  std::memcpy(&y, &shifted, sizeof y);
  return y;
}

// The first n numbers, then zeros.
template <class T>
HORNER_INLINE auto load_some(const T* x, int64_t n) {
  T padded[kLanes] = {};
  std::memcpy(static_cast<void*>(padded), x, size_t(n) * sizeof(T));
  return load(padded);
}

template <class A>
HORNER_INLINE void store(A* x, const Vector<A>& y) {
  std::memcpy(x, &y, sizeof y);
}

// Lane i of the result is the sum of the lanes of x[i]. Each level adds the halves of every group
// of lanes and puts two vectors into one.
template <class A>
HORNER_INLINE Vector<A> sums(Vector<A> (&x)[kLanes]) {
#define HORNER_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
  for (int i = 0; i < 8; ++i)
    x[i] = HORNER_SHUFFLE(x[i], x[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           HORNER_SHUFFLE(
               x[i], x[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
           );
  for (int i = 0; i < 4; ++i)
    x[i] =
        HORNER_SHUFFLE(x[i], x[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +
        HORNER_SHUFFLE(x[i], x[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  for (int i = 0; i < 2; ++i)
    x[i] =
        HORNER_SHUFFLE(x[i], x[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
        HORNER_SHUFFLE(x[i], x[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  return HORNER_SHUFFLE(x[0], x[1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
         HORNER_SHUFFLE(x[0], x[1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
#undef HORNER_SHUFFLE
}

// e^x for x <= 0, relative error 2e-7: x = n log 2 + y, |y| <= log(2)/2, and e^y by its series.
HORNER_INLINE Vector<float> exponential(Vector<float> x) {
  const Vector<float> least = Vector<float>{} - 87.f;
  x = x < least ? least : x;
  const Vector<float> magic = Vector<float>{} + 12582912.f;  // 1.5 * 2^23: rounds to whole numbers
  const Vector<float> n = (x * 1.44269504f + magic) - magic;
  const Vector<float> y = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vector<float> e = y * (1.f / 720) + 1.f / 120;
  e = e * y + 1.f / 24;
  e = e * y + 1.f / 6;
  e = e * y + 0.5f;
  e = e * y + 1.f;
  e = e * y + 1.f;
  const Vector<int32_t> power = (__builtin_convertvector(n, Vector<int32_t>) + 127) << 23;
  Vector<float> scale;
  std::memcpy(&scale, &power, sizeof scale);
  return e * scale;
}
HORNER_INLINE Vector<double> exponential(Vector<double> x) {
  for (int64_t i = 0; i < kLanes; ++i) x[i] = std::exp(x[i]);
  return x;
}

}  // namespace horner::vectors
