// A tensor that loses its memory for a while. All its views lose it too, also those that autograd has saved.
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

inline void free_memory(const at::Tensor& x) {
  c10::StorageImpl* storage = x.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(0));
  storage->set_nbytes(0);
}

inline void take_memory(const at::Tensor& x) {  // what it holds is not defined
  c10::StorageImpl* storage = x.storage().unsafeGetStorageImpl();
  const size_t bytes = size_t(x.numel()) * x.element_size();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

}  // namespace horner
