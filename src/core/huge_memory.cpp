#include "core/huge_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "core/check.h"

namespace horner {
namespace {

constexpr size_t kHuge = size_t(2) << 20, kSlab = size_t(32) << 20, kAligned = 64;

}  // namespace

std::shared_ptr<std::byte> huge_memory(size_t bytes) {
  const size_t mapped = bytes + kHuge;  // room for a start at a multiple of 2 MiB
  void* base = MAP_FAILED;
  if (bytes < SIZE_MAX - kHuge)
    base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) throw DeviceError("there is no memory for {} bytes", bytes);
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(base) + kHuge - 1) / kHuge * kHuge;
  madvise(reinterpret_cast<void*>(begin), bytes, MADV_HUGEPAGE);  // a wish: the system may refuse
  return {
      reinterpret_cast<std::byte*>(begin), [base, mapped](std::byte*) { munmap(base, mapped); }};
}

std::shared_ptr<std::byte> HugeArena::take(size_t bytes) {
  const size_t begin = (used_ + kAligned - 1) / kAligned * kAligned;
  if (slab_ == nullptr || bytes > size_ || begin > size_ - bytes) {
    size_ = std::max(bytes, kSlab);
    slab_ = huge_memory(size_);
    used_ = bytes;
    return {slab_, slab_.get()};
  }
  used_ = begin + bytes;
  return {slab_, slab_.get() + begin};
}

}  // namespace horner
