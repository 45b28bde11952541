#include "ops/attention/attention_cuda.h"

namespace horner {

std::vector<Form> attention_kernels() {
  return {attention_step_kernel(), attention_flash_kernel()};
}

}  // namespace horner
