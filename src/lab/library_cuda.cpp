// THE list of what libhorner_cuda.so brings for everything except the ops. open_cuda calls it once.
#include "nn/features/scalar_networks.h"
#include "nn/position/rotate.h"
#include "nn/selective_scan.h"
#include "nn/short_conv.h"
#include "train/distributed.h"

extern "C" void horner_plug_cuda() {
  horner::conv_kernels() = horner::cuda_conv_kernels();
  horner::make_nccl() = horner::cuda_make_nccl();
  horner::network_kernels() = horner::cuda_network_kernels();
  horner::rotate_kernel() = horner::cuda_rotate_kernel();
  horner::selective_kernels() = horner::cuda_selective_kernels();
}
