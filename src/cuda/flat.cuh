// A matrix of F rows of C numbers on end, read in units of 16 bytes.
#pragma once

namespace horner::cuda {

// C need be no multiple of 4, so that rows, and matrices, begin anywhere. Units are taken as they lie in memory: thread t has
// units t, t + stride, ... With 4 stride a multiple of C these are the same four columns each time, `rows` rows apart. Up
// to 3 numbers at either end are in no unit: loose.
struct Flat {
  int C, count, stride, rows;

  Flat(int F, int columns, int threads) : C(columns), count(F * columns) {
    const int least = C % 4 == 0 ? C / 4 : C % 2 == 0 ? C / 2 : C;  // 4 least is a multiple of C
    stride = threads / least * least;
    rows = 4 * stride / C;
  }
};

}  // namespace horner::cuda
