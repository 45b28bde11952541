// What libhorner_cuda.so brings: the CUDA key of torch.ops.horner.*, and kernels. It runs when the library is opened, by the
// program (core/device.h) or by Python.
#include "nn/features/scalar_networks.h"
#include "nn/fused/gates.h"
#include "nn/fused/kernels.h"
#include "nn/fused/pointwise.h"
#include "nn/head_loss/head_loss.h"
#include "nn/inline_sums/inline_sums.h"
#include "nn/position/rotate.h"
#include "nn/selective_scan.h"
#include "nn/short_conv.h"
#include "ops/library.h"
#include "tasks/recall/on_gpu.h"
#include "train/distributed.h"
#include "train/replay.h"

TORCH_LIBRARY_IMPL(horner, CUDA, m) {
  horner::implement_kernels();
  horner::register_forms(m);
  horner::conv_kernels() = horner::cuda_conv_kernels();
  horner::fused_kernels() = horner::cuda_fused_kernels();
  horner::loss_step() = horner::cuda_loss_step();
  horner::gate_kernels() = horner::cuda_gate_kernels();
  horner::inline_kernels() = horner::cuda_inline_kernels();
  horner::make_nccl() = horner::cuda_make_nccl();
  horner::network_kernels() = horner::cuda_network_kernels();
  horner::pointwise_kernel() = horner::cuda_pointwise_kernel();
  horner::recall_kernel() = horner::cuda_recall_kernel();
  horner::replay_kernels() = horner::cuda_replay_kernels();
  horner::rotate_kernels() = horner::cuda_rotate_kernels();
  horner::selective_kernels() = horner::cuda_selective_kernels();
}
