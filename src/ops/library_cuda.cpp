// The CUDA key of torch.ops.horner.*, and THE list of kernels that take the place of plain forms.
#include "ops/attention/attention_cuda.h"
#include "ops/delta/delta_cuda.h"
#include "ops/kernel.h"
#include "ops/lazy/lazy_cuda.h"
#include "ops/library.h"
#include "ops/linear/linear_cuda.h"
#include "ops/power/power_cuda.h"
#include "ops/scan/scan_cuda.h"

TORCH_LIBRARY_IMPL(horner, CUDA, m) {
  horner::set_kernels("attention", horner::attention_kernels());
  horner::set_kernels("delta", horner::delta_kernels());
  horner::set_kernels("exponential_gate", horner::gated_kernels());
  horner::set_kernels("linear", horner::linear_kernels());
  horner::set_kernels("power", horner::power_kernels());
  horner::set_kernels("scan", horner::scan_kernels());
  horner::set_reader("linear", horner::linear_reader());
  horner::set_reader("power", horner::power_reader());
  horner::register_forms(m);
}
