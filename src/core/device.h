// Which device runs: the CPU, or a GPU through libhorner_cuda.so, which is opened if there is a GPU driver.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

namespace horner {

// Where libhorner.so lies, and the libraries that it opens.
std::string library_folder();

// Opens libhorner_cuda.so of that folder. Call it before anything else that touches torch: torch
// decides once per process whether there is CUDA. Empty on success, else the reason.
const std::string& open_cuda();

// oneDNN without AMX, before its first use, unless ONEDNN_MAX_CPU_ISA says otherwise: with torch 2.11 its bf16 products
// stop with an illegal instruction (tilezero on a thread without a tile configuration).
void leave_out_amx();

// "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1"; DeviceError if there is no such device.
at::Device find_device(std::string_view name);

// "CPU, 2 threads" or "NVIDIA H200, 132 SMs, sm_90".
std::string describe_device(at::Device device);

// Bytes that a program can still take there.
int64_t free_memory(at::Device device);

}  // namespace horner
