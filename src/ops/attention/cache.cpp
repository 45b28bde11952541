#include "ops/attention/cache.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>

#include "core/memory.h"

namespace horner {
namespace {

constexpr int64_t kLeastRoom = 64;  // slots

thread_local bool copies = false;

struct Buffer {
  at::Tensor memory;  // (B,G,capacity,X)
  int64_t unseen;     // every row has got at least `slot - unseen` tokens when slot is its end
  std::atomic<int64_t> used;

  int64_t capacity() const { return memory.size(2); }
};

void delete_buffer(void* buffer) { delete static_cast<Buffer*>(buffer); }

Buffer* buffer_of(const at::Tensor& x) {
  if (!x.defined() || !x.has_storage()) return nullptr;
  const c10::DataPtr& data = x.storage().data_ptr();
  return data.get_deleter() == &delete_buffer ? static_cast<Buffer*>(data.get_context()) : nullptr;
}

// Slots first .. first + S of some rows of a buffer, as a tensor that shares only its storage.
at::Tensor view(
    const c10::Storage& storage,
    const Buffer& buffer,
    int64_t B,
    int64_t G,
    int64_t S,
    int64_t offset
) {
  const at::Tensor& memory = buffer.memory;
  at::Tensor x = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage),
      c10::DispatchKeySet(memory.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU),
      memory.dtype()
  );
  const int64_t sizes[] = {B, G, S, memory.size(3)};
  x.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, memory.strides(), offset);
  return x;
}

struct Made {
  c10::Storage storage;
  Buffer* buffer;
};
Made make_buffer(const at::Tensor& memory, int64_t used, int64_t appended) {
  auto* buffer = new Buffer{memory, used - appended, used};
  c10::DataPtr data(memory.data_ptr(), buffer, &delete_buffer, memory.device());
  return {
      c10::Storage(
          c10::Storage::use_byte_size_t(), memory.nbytes(), std::move(data), nullptr, false
      ),
      buffer};
}

// The slot after the last of x, if x may grow in place: its rows are rows of the buffer.
std::optional<int64_t> end_of(const at::Tensor& x, const Buffer& buffer) {
  const at::Tensor& memory = buffer.memory;
  const int64_t X = memory.size(3);
  const bool slots = x.dim() == 4 && x.size(3) == X && x.numel() > 0 && x.stride(3) == 1 &&
                     (x.size(2) == 1 || x.stride(2) == X) && x.storage_offset() % X == 0 &&
                     x.scalar_type() == memory.scalar_type();
  if (!slots) return {};
  for (const int64_t dim : {0, 1}) {  // an expanded x has one row twice: not writable in place
    if (x.size(dim) > 1 && x.stride(dim) != memory.stride(dim)) return {};
  }
  return x.storage_offset() / X % buffer.capacity() + x.size(2);
}

void delete_fixed(void* memory) { delete static_cast<at::Tensor*>(memory); }

bool differentiable(const at::Tensor& a, const at::Tensor& b) {
  return c10::GradMode::is_enabled() && (a.requires_grad() || b.requires_grad());
}

}  // namespace

CachesAreCopied::CachesAreCopied(bool on) : before_(copies) { copies = on; }
CachesAreCopied::~CachesAreCopied() { copies = before_; }

at::Tensor extend(const at::Tensor& cache, int64_t T, int64_t keep) {
  const int64_t B = cache.size(0), G = cache.size(1), X = cache.size(3);
  const int64_t S = keep > 0 ? keep : cache.size(2) + T;
  if (Buffer* own = copies ? nullptr : buffer_of(cache)) {
    const std::optional<int64_t> end = end_of(cache, *own);
    int64_t used = end.value_or(-1);
    if (end && *end + T <= own->capacity() && own->used.compare_exchange_strong(used, *end + T)) {
      const int64_t offset = cache.storage_offset() + (cache.size(2) + T - S) * X;
      return view(cache.storage(), *own, B, G, S, offset);
    }
  }
  const int64_t kept = std::min(std::max<int64_t>(0, S - T), cache.size(2));
  const int64_t more = std::max(kLeastRoom, cache.size(2) == 0 && keep == 0 ? S / 4 : S);
  const int64_t room = copies ? 0 : more;
  const at::Tensor memory =
      at::empty({B, G, S + room, X}, cache.options().requires_grad(false)).detach();
  const int64_t first = std::max<int64_t>(0, S - T) - kept;  // slots that hold nothing are zero
  if (first > 0) memory.narrow(2, 0, first).zero_();
  if (kept > 0) {
    memory.narrow(2, first, kept).copy_(cache.detach().narrow(2, cache.size(2) - kept, kept));
  }
  if (copies) return memory;
  const Made made = make_buffer(memory, S, least_appended(cache) + T);
  return view(made.storage, *made.buffer, B, G, S, 0);
}

at::Tensor append(const at::Tensor& cache, const at::Tensor& rows, int64_t keep) {
  const int64_t T = rows.size(2), S = keep > 0 ? keep : cache.size(2) + T;
  if (differentiable(cache, rows) || !has_memory(cache) || !has_memory(rows)) {
    at::Tensor all = at::cat({cache, rows.to(cache.scalar_type())}, 2);
    const int64_t missing = S - all.size(2);
    if (missing > 0) all = at::constant_pad_nd(all, {0, 0, missing, 0});
    return missing < 0 ? all.narrow(2, -missing, S).contiguous() : all;
  }
  const at::Tensor all = extend(cache, T, keep);
  const int64_t written = std::min(T, S);
  all.narrow(2, S - written, written).copy_(rows.detach().narrow(2, T - written, written));
  return all;
}

at::Tensor fixed_cache(const at::Tensor& memory) {
  c10::DataPtr data(memory.data_ptr(), new at::Tensor(memory), &delete_fixed, memory.device());
  at::Tensor cache = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(
          c10::Storage::use_byte_size_t(), memory.nbytes(), std::move(data), nullptr, false
      ),
      c10::DispatchKeySet(memory.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU),
      memory.dtype()
  );
  cache.unsafeGetTensorImpl()->set_sizes_contiguous(memory.sizes());
  return cache;
}

bool is_fixed(const at::Tensor& cache) {
  return cache.defined() && cache.has_storage() &&
         cache.storage().data_ptr().get_deleter() == &delete_fixed;
}

at::Tensor in_order(const at::Tensor& fixed, const at::Tensor& seen) {
  const int64_t C = fixed.size(2);
  const at::Tensor slot = (seen.unsqueeze(-1) + at::arange(C, seen.options())).remainder(C);
  return fixed.gather(2, slot.unsqueeze(-1).expand_as(fixed));
}

at::Tensor oldest(const at::Tensor& fixed, const at::Tensor& seen) {
  const at::Tensor slot = seen.remainder(fixed.size(2)).unsqueeze(-1).unsqueeze(-1);  // (B,G,1,1)
  return fixed.gather(2, slot.expand({-1, -1, 1, fixed.size(3)}));
}

bool has_room(const at::Tensor& cache) { return buffer_of(cache) != nullptr; }

int64_t room_bytes(const at::Tensor& cache) {
  const Buffer* buffer = buffer_of(cache);
  return int64_t(buffer != nullptr ? buffer->memory.nbytes() : cache.nbytes());
}

int64_t least_appended(const at::Tensor& cache) {
  const Buffer* buffer = buffer_of(cache);
  if (buffer == nullptr) return 0;
  const std::optional<int64_t> end = end_of(cache, *buffer);
  return end ? std::max<int64_t>(0, *end - buffer->unseen) : 0;
}

}  // namespace horner
