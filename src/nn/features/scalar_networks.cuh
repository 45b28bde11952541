// Parameters of the kernels of the scalar networks (scalar_networks.h has the equations).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace horner::cuda {

struct ScalarNetworks {
  int64_t n;
  int R, E;
  const float *u, *f1, *b1, *f2, *b2;
  float* y = nullptr;         // (n,R)
  const float* dy = nullptr;  // (n,R)
  float *du = nullptr, *sums = nullptr;
};

int64_t network_parts(const ScalarNetworks&);  // blocks of the backward
cudaError_t networks_forward(const ScalarNetworks&, cudaStream_t);
cudaError_t networks_backward(const ScalarNetworks&, cudaStream_t);

}  // namespace horner::cuda
