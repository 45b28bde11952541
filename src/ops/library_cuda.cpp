// THE list of the kernels that libhorner_cuda.so brings for the ops' forms.
#include "ops/attention/attention_cuda.h"
#include "ops/delta/delta_cuda.h"
#include "ops/lazy/lazy_cuda.h"
#include "ops/library.h"
#include "ops/linear/linear_cuda.h"
#include "ops/power/power_cuda.h"
#include "ops/scan/scan_cuda.h"

namespace horner {

void implement_kernels() {
  implement("attention", attention_kernels());
  implement("delta", delta_kernels());
  implement("linear", linear_kernels(), linear_reader());
  implement("power", power_kernels(), power_reader());
  implement("scan", scan_kernels());
}

}  // namespace horner
