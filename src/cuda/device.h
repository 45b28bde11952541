// What kernels ask about the GPU they run on.
#pragma once

namespace horner::cuda {

int processors();  // multiprocessors of the current GPU

}  // namespace horner::cuda
