// Loops of layers whose state has a constant size, on one thread of a CPU. Widths that are "in 16s" are multiples of 16.
#pragma once

#include "nn/cpu/targets.h"

namespace horner {

// x_rc = q_r.w_c for q (queries,K) and n rows w, in 16s, which lie in groups (n/16,K,16); the rows of x are `stride` apart.
struct GroupDots {
  const float* q;
  int64_t queries;
  const float* w;
  int64_t K, n;
  float* x;
  int64_t stride;
};
void group_dots(const GroupDots& task, Target = best_target());

//   S = diag(a) S + u^T v, unless u is null;   o_r = p_r S
struct Sweep {
  float* S;  // (F,V), V in 16s
  int64_t F, V;
  const float* p;  // (queries,F), rows `stride` apart
  int64_t queries, stride;
  float* o;                                              // (queries,V)
  const float *a = nullptr, *u = nullptr, *v = nullptr;  // (F), (F), (V)
};
void sweep(const Sweep& task, Target = best_target());

// n in 16s.
struct Weighed {
  float m, l;
};
// m = max x over z > 0;  x = e^{x - m}, 0 where z = 0;  l = x.z
Weighed weigh_centres(float* x, const float* z, int64_t n, Target = best_target());
int64_t nearest_centre(float* x, const float* y, int64_t n, Target = best_target());  // x is lost
float dot_row(const float* x, const float* y, int64_t n, Target = best_target());
void softmax_row(
    const float* x, float sign, int64_t n, float* y, Target = best_target()
);  // of sign x
void sigmoid_row(const float* x, int64_t n, float* y, Target = best_target());

}  // namespace horner
