// What the kernels of one token share.
#pragma once

#include <ATen/Functions.h>

#include "ops/op.h"

namespace horner {

// Why no step kernel can run these inputs; empty: some may.
inline std::string refuses_any_step(const Inputs& in) {
  if (in.q.size(1) != 1) return fmt::format("it takes one token, got T = {}", in.q.size(1));
  if (in.cu_seqlens.defined()) return "it takes no packed batch";
  if (in.i.defined()) return "it has no exponential gate";
  if (in.v.numel() == 0 || in.q.numel() == 0) return "there is nothing to compute";
  return "";
}

// The state as step kernels read it: fp32, contiguous, aligned to 16 bytes.
inline at::Tensor readable_state(const at::Tensor& S) {
  const at::Tensor x = S.detach().to(at::kFloat).contiguous();
  return reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0 ? x : x.clone();
}

}  // namespace horner
