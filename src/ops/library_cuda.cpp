// The CUDA key of torch.ops.horner.*, and THE list of the kernels that libhorner_cuda.so brings for the ops' forms.
#include "ops/attention/attention_cuda.h"
#include "ops/delta/delta_cuda.h"
#include "ops/lazy/lazy_cuda.h"
#include "ops/library.h"
#include "ops/linear/linear_cuda.h"
#include "ops/power/power_cuda.h"
#include "ops/scan/scan_cuda.h"

TORCH_LIBRARY_IMPL(horner, CUDA, m) {
  horner::implement("attention", horner::attention_kernels());
  horner::implement("delta", horner::delta_kernels());
  horner::implement("linear", horner::linear_kernels(), horner::linear_reader());
  horner::implement("power", horner::power_kernels(), horner::power_reader());
  horner::implement("scan", horner::scan_kernels());
  horner::register_forms(m);
}
