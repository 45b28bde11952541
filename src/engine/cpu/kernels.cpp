#include "engine/cpu/kernels.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace horner {
namespace {

using vectors::kLanes;
using vectors::Vector;

#define HORNER_LOOPS "engine/cpu/kernels.inc"
#include "nn/cpu/each_target.inc"

// The functions of a target, in the order of `Target`.
struct Functions {
  decltype(&plain::rms_norm) rms_norm;
  decltype(&plain::swiglu) swiglu;
  decltype(&plain::halves) halves;
  decltype(&plain::attend_all) attend;
};
constexpr Functions kFunctions[] = {
    {plain::rms_norm, plain::swiglu, plain::halves, plain::attend_all},
    {avx2::rms_norm, avx2::swiglu, avx2::halves, avx2::attend_all},
    {avx512::rms_norm, avx512::swiglu, avx512::halves, avx512::attend_all}};
const Functions& functions(Target target) { return kFunctions[int(target)]; }

}  // namespace

void rms_norm_row(
    const float* x, const float* weight, double eps, int64_t n, float* y, Target target
) {
  functions(target).rms_norm(x, weight, eps, n, y);
}
void swiglu_row(const float* gate, const float* up, int64_t n, float* y, Target target) {
  functions(target).swiglu(gate, up, n, y);
}
void to_halves(const float* x, int64_t n, uint16_t* y, Target target) {
  functions(target).halves(x, n, y);
}
void attend(const Attend& task, Target target) { functions(target).attend(task); }

}  // namespace horner
