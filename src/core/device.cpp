#include "core/device.h"

#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/check.h"

namespace horner {
namespace {

std::string open_cuda_library() {
  if (dlopen("libcuda.so.1", RTLD_LAZY) == nullptr) return "no GPU driver on this machine";
  const std::string path = library_folder() + "/libhorner_cuda.so";
  if (!std::filesystem::exists(path)) return "built without CUDA: " + path + " is not there";
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) return dlerror();
  if (at::detail::getCUDAHooks().deviceCount() == 0) return "no GPU on this machine";
  return "";
}

}  // namespace

std::string library_folder() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&library_folder), &info);
  return std::filesystem::path(info.dli_fname).parent_path().string();
}

void leave_out_amx() { setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 0); }

const std::string& open_cuda() {
  static const std::string reason = open_cuda_library();
  return reason;
}

at::Device find_device(std::string_view name) {
  if (name == "cpu") return at::kCPU;
  const std::string& reason = open_cuda();
  if (name == "auto") return reason.empty() ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  int64_t index = 0;
  if (name.starts_with("cuda:") && name.size() == 6 && name[5] >= '0' && name[5] <= '9') {
    index = name[5] - '0';
  } else {
    HORNER_CHECK(name == "cuda", "device must be auto, cpu, cuda or cuda:N, got '{}'", name);
  }
  if (!reason.empty()) throw DeviceError("device {}: {}", name, reason);
  const int64_t count = at::detail::getCUDAHooks().deviceCount();
  if (index >= count) throw DeviceError("device {}: this machine has {} GPU(s)", name, count);
  return at::Device(at::kCUDA, c10::DeviceIndex(index));
}

std::string describe_device(at::Device device) {
  if (device.is_cpu()) {
    const int threads = at::get_num_threads();
    return fmt::format("CPU, {} {}", threads, threads == 1 ? "thread" : "threads");
  }
  using Describe = const char* (*)(int);
  const auto describe = reinterpret_cast<Describe>(dlsym(RTLD_DEFAULT, "horner_describe_gpu"));
  return describe ? describe(device.index()) : device.str();
}

int64_t free_memory(at::Device device) {
  if (!device.is_cpu())
    return int64_t(c10::getDeviceAllocator(device.type())
                       ->getMemoryInfo(std::max<int>(0, device.index()))
                       .first);
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    int64_t kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %ld kB", &kib) == 1) return kib << 10;
  }
  return int64_t(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

}  // namespace horner
