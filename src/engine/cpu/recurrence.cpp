#include "engine/cpu/recurrence.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace horner {
namespace {

using vectors::kLanes;
using vectors::Vector;

#define HORNER_LOOPS "engine/cpu/recurrence.inc"
#include "nn/cpu/each_target.inc"

// The functions of a target, in the order of `Target`.
struct Functions {
  decltype(&plain::dots) dots;
  decltype(&plain::sweep_all) sweep;
  decltype(&plain::weigh) weigh;
  decltype(&plain::nearest) nearest;
  decltype(&plain::dot_all) dot;
  decltype(&plain::softmax) softmax;
  decltype(&plain::sigmoid) sigmoid;
};
#define HORNER_FUNCTIONS(target)                                                      \
  {                                                                                   \
    target::dots, target::sweep_all, target::weigh, target::nearest, target::dot_all, \
        target::softmax, target::sigmoid                                              \
  }
constexpr Functions kFunctions[] = {
    HORNER_FUNCTIONS(plain), HORNER_FUNCTIONS(avx2), HORNER_FUNCTIONS(avx512)};
const Functions& functions(Target target) { return kFunctions[int(target)]; }

}  // namespace

void group_dots(const GroupDots& task, Target target) { functions(target).dots(task); }
void sweep(const Sweep& task, Target target) { functions(target).sweep(task); }
Weighed weigh_centres(float* x, const float* z, int64_t n, Target target) {
  return functions(target).weigh(x, z, n);
}
int64_t nearest_centre(float* x, const float* y, int64_t n, Target target) {
  return functions(target).nearest(x, y, n);
}
float dot_row(const float* x, const float* y, int64_t n, Target target) {
  return functions(target).dot(x, y, n);
}
void softmax_row(const float* x, float sign, int64_t n, float* y, Target target) {
  functions(target).softmax(x, sign, n, y);
}
void sigmoid_row(const float* x, int64_t n, float* y, Target target) {
  functions(target).sigmoid(x, n, y);
}

}  // namespace horner
