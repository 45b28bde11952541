// Which device runs: the CPU, or a GPU through libhorner_cuda.so, which is opened where there is one.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

namespace horner {

// Opens libhorner_cuda.so beside this library. Call it before anything else that touches torch: the first
// question about CUDA fixes the answer for the life of the process. Empty on success, else the reason.
const std::string& open_cuda();

// oneDNN without AMX, before its first use, unless ONEDNN_MAX_CPU_ISA says otherwise: with torch 2.11 its bf16 products
// stop with an illegal instruction (tilezero on a thread without a tile configuration).
void leave_out_amx();

// "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:1"; DeviceError where it cannot be had.
at::Device find_device(std::string_view name);

// "CPU, 2 threads" or "NVIDIA H200, 132 SMs, sm_90".
std::string describe_device(at::Device device);

}  // namespace horner
